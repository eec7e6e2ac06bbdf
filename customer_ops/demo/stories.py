"""The stories that `make demo ARGS=--check` plays: through the pages, with real processes, against the sandbox's books.

Each story is a function of the stage; it returns what was seen, or raises StoryFailed. What it waits for is a fact in
the rows, never a span of time.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from customer_ops.celery import app
from customer_ops.demo.client import Person
from customer_ops.demo.place import Place
from customer_ops.demo.processes import Child, start_worker, wait_until
from customer_ops.models import Mail, Order, RefundRequest, RefundState
from customer_ops.sandbox.control import SandboxControl
from durableflows.models import ApprovalRequest, SideEffect, StepAttempt, StepRun, WorkflowRun

REFUNDS = "/v1/refunds"
WAIT_SECONDS = 45.0


class StoryFailed(Exception):
    """What was seen is not what must hold."""


@dataclass
class Stage:
    """Everything that a story plays with."""

    place: Place
    sandbox: SandboxControl
    worker: Child
    agent: Person
    manager: Person

    def order(self, *, large: bool) -> Order:
        """An order in dollars that no story has touched, below or above the limit for a manager's word."""
        orders = Order.objects.filter(total_currency="USD", charges__refund_requests=None)
        orders = orders.filter(total_minor__gt=60_000) if large else orders.filter(total_minor__lt=40_000)
        order = orders.order_by("number").first()
        if order is None:
            raise StoryFailed("no order is left to play with")
        return order

    def ask(self, order: Order, *, amount: str = "", times: int = 1) -> RefundRequest:
        """Ask for a refund on the order's page, as an agent does."""
        wanted = amount or str(order.total.amount)
        codes = self.agent.ask_for_refund(order.number, amount=wanted, reason="It came broken.", times=times)
        if any(code != 200 for code in codes):
            raise StoryFailed(f"the refund form of order {order.number} was answered with {codes}")
        requests = RefundRequest.objects.filter(charge__order=order)
        if requests.count() != 1:
            raise StoryFailed(f"order {order.number} has {requests.count()} refund requests, not one")
        return requests.get()

    def decide(self, request: RefundRequest, verdict: str) -> None:
        """Answer the request's question in Django's admin, as a manager does."""
        asked = wait_until(
            lambda: ApprovalRequest.objects.filter(run_id=request.run_id, state="OPEN").first(),
            seconds=WAIT_SECONDS,
            what="the manager to be asked",
        )
        assert asked is not None
        self.manager.decide(str(asked.pk), verdict, comment="Seen by the demo.")

    def finish(self, request: RefundRequest, state: RefundState, *, refunds: int) -> str:
        """Wait for the run's end, and compare rows, page and the provider's books. Returns them in words."""
        assert request.run_id is not None
        ended = WorkflowRun.objects.filter(pk=request.run_id, ended_at__isnull=False)
        run = wait_until(
            ended.first,
            seconds=WAIT_SECONDS,
            what=f"the refund of {request.amount} to end",
        )
        assert run is not None
        request.refresh_from_db()
        keys = SideEffect.objects.filter(run=run, effect="payments.refund").values_list("key", flat=True)
        made = sum(self.sandbox.books().refunds_of(key) for key in keys)
        mails = Mail.objects.filter(to=request.charge.order.customer.email, sent_at__isnull=False).count()
        page = self.agent.read(f"/orders/{request.charge.order.number}/")
        seen = f"{made} refund{'' if made == 1 else 's'} of {request.amount} in the provider's books, run {run.word}"
        if made != refunds or request.state != state or run.state != "SUCCEEDED" or not mails:
            raise StoryFailed(f"{seen}, request {request.state}, {mails} mails; expected {refunds} and {state}")
        if request.get_state_display().lower() not in page.lower():
            raise StoryFailed(f"{seen}, but the order's page does not say {request.get_state_display()!r}")
        return f"{seen}, customer told"

    def hold_answer(self, request_for: Order) -> RefundRequest:
        """Ask for a refund whose answer the provider holds back after it acted; returns when it has acted."""
        charge = request_for.charges.get()
        self.sandbox.fault("timeout_after", path=REFUNDS, charge=charge.provider_id, seconds=60)
        request = self.ask(request_for)
        self.sandbox.wait_until_held(timeout_seconds=WAIT_SECONDS)
        return request


def small_refund(stage: Stage) -> str:
    """Below the limit: nobody is asked."""
    return stage.finish(stage.ask(stage.order(large=False)), RefundState.REFUNDED, refunds=1)


def approved_refund(stage: Stage) -> str:
    """Above the limit: a manager says yes in the admin."""
    request = stage.ask(stage.order(large=True))
    stage.decide(request, "approve")
    return stage.finish(request, RefundState.REFUNDED, refunds=1)


def rejected_refund(stage: Stage) -> str:
    """Above the limit: a manager says no in the admin."""
    request = stage.ask(stage.order(large=True))
    stage.decide(request, "reject")
    return stage.finish(request, RefundState.REJECTED, refunds=0)


def lost_answer(stage: Stage) -> str:
    """The provider acts and the connection breaks before its answer."""
    order = stage.order(large=False)
    stage.sandbox.fault("cut_after", path=REFUNDS, charge=order.charges.get().provider_id)
    request = stage.ask(order)
    seen = stage.finish(request, RefundState.REFUNDED, refunds=1)
    return f"{seen}; {_sends(request)}"


def killed_child(stage: Stage) -> str:
    """SIGKILL of the process that waits for the answer, after the provider acted."""
    request = stage.hold_answer(stage.order(large=False))
    attempt = StepAttempt.objects.get(step__run_id=request.run_id, step__state="RUNNING", ended_at=None)
    os.kill(attempt.pid, signal.SIGKILL)
    wait_until(
        lambda: StepRun.objects.filter(run_id=request.run_id, name="pay", lost_workers=1).exists(),
        seconds=WAIT_SECONDS,
        what="the dead process to be noticed",
    )
    stage.sandbox.release()
    return f"{stage.finish(request, RefundState.REFUNDED, refunds=1)}; {_sends(request)}"


def killed_worker(stage: Stage) -> str:
    """SIGKILL of the whole worker, its ticker too, after the provider acted; another worker is started."""
    request = stage.hold_answer(stage.order(large=False))
    stage.worker.kill_family()
    stage.sandbox.release()
    stage.worker = start_worker(stage.place)
    return f"{stage.finish(request, RefundState.REFUNDED, refunds=1)}; {_sends(request)}"


def emptied_broker(stage: Stage) -> str:
    """The message that starts the refund is lost with everything else in the broker."""
    stage.worker.end()  # ended, not stopped: Redis hands messages to a stopped worker's open connection
    try:
        request = stage.ask(stage.order(large=False))
        lost = app.control.purge()
    finally:
        stage.worker = start_worker(stage.place)
    if not lost:
        raise StoryFailed("the broker held no message that could be lost")
    return f"{stage.finish(request, RefundState.REFUNDED, refunds=1)}; {lost} message lost"


def sent_twice(stage: Stage) -> str:
    """The same form arrives twice at the same moment."""
    request = stage.ask(stage.order(large=False), times=2)
    return stage.finish(request, RefundState.REFUNDED, refunds=1)


def _sends(request: RefundRequest) -> str:
    row = SideEffect.objects.filter(run_id=request.run_id, effect="payments.refund").latest("issue")
    return f"{row.send_count} sends, one key"


STORIES: dict[str, Callable[[Stage], str]] = {
    "small refund": small_refund,
    "large refund, approved": approved_refund,
    "large refund, rejected": rejected_refund,
    "answer lost": lost_answer,
    "child killed after the act": killed_child,
    "worker killed after the act": killed_worker,
    "broker emptied": emptied_broker,
    "same request twice": sent_twice,
}
"""What is played, in this order."""
