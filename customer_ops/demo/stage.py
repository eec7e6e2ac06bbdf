"""What the stories are played on: processes, people at the pages, and the waits that end with a fact in the rows."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from customer_ops.demo.client import Person
from customer_ops.demo.evidence import REFUNDS, Evidence, collect
from customer_ops.demo.place import Place
from customer_ops.demo.processes import Child, descendants, start_worker, wait_until
from customer_ops.mailbox.script import Script
from customer_ops.mailbox.store import Store
from customer_ops.models import Order, RefundRequest, RefundState
from customer_ops.sandbox.control import SandboxControl
from durableflows import Money
from durableflows.models import ApprovalRequest, StepAttempt, WorkflowRun

T = TypeVar("T")

WAIT_SECONDS = 30.0


class StoryFailed(Exception):
    """What was seen is not what must hold."""


@dataclass
class Stage:
    """Everything that a story plays with. `children`: all processes, for whoever ends them."""

    place: Place
    sandbox: SandboxControl
    children: list[Child]
    worker: Child
    agent: Person
    manager: Person
    asked: list[RefundRequest] = field(default_factory=list)

    def order(self, *, large: bool) -> Order:
        """An order in dollars that no story has touched; half of it is below or above the limit for a manager."""
        orders = Order.objects.filter(total_currency="USD", charges__refund_requests=None)
        orders = orders.filter(total_minor__gt=110_000) if large else orders.filter(total_minor__lt=40_000)
        order = orders.order_by("number").first()
        if order is None:
            raise StoryFailed("no order is left to play with")
        return order

    def ask(self, order: Order, *, times: int = 1) -> RefundRequest:
        """Ask for half of an order on its page, as an agent does.

        Half, so that a second refund would fit: of a charge that is given back already, the provider refuses more, and
        its books would show one refund whatever was sent.
        """
        amount = str(Money(order.total.amount_minor // 2, order.total.currency).amount)
        codes = self.agent.ask_for_refund(order.number, amount=amount, reason="It came broken.", times=times)
        requests = list(RefundRequest.objects.filter(charge__order=order))
        self.asked += requests
        if any(code != 200 for code in codes):
            raise StoryFailed(f"the refund form of order {order.number} was answered with {codes}")
        if len(requests) != 1:
            raise StoryFailed(f"order {order.number} has {len(requests)} refund requests, not one")
        return requests[0]

    def lose_events(self, order: Order) -> None:
        """Let the provider's own word about the next refund of an order be lost, so that its answer alone tells."""
        self.sandbox.event_fault("lost", times=2, charge=order.charges.get().provider_id)

    def hold_answer(self, order: Order) -> RefundRequest:
        """Ask for a refund whose answer the provider holds back after it acted; returns when it has acted."""
        self.lose_events(order)
        self.sandbox.fault("timeout_after", path=REFUNDS, charge=order.charges.get().provider_id, seconds=60)
        request = self.ask(order)
        self.sandbox.wait_until_held(timeout_seconds=WAIT_SECONDS)
        if not (seen := self.evidence(request)).refunds:
            raise StoryFailed(f"the provider holds an answer, and has not acted: {seen}")
        return request

    def kill_child(self, request: RefundRequest) -> None:
        """SIGKILL the pool process that works on a request's run."""
        attempt = StepAttempt.objects.get(step__run_id=request.run_id, step__state="RUNNING", ended_at=None)
        if attempt.pid not in descendants(self.worker.process.pid):
            raise StoryFailed(f"process {attempt.pid} holds the lease, and is none of this demo's worker")
        os.kill(attempt.pid, signal.SIGKILL)

    def refuse_next_mail(self, answer: str) -> None:
        """Let the mail server read the next mail and then refuse it."""
        Script(self.place.mail_script).add(f"TEXT {answer}")

    def start_worker(self) -> None:
        """Start another worker in place of one that is gone."""
        self.worker = start_worker(self.place, self.children)

    def decide(self, request: RefundRequest, verdict: str, *, amount: Money | None = None) -> None:
        """Answer the request's question in Django's admin, as a manager does. `amount`: what is approved instead."""
        questions = ApprovalRequest.objects.filter(run_id=request.run_id, state="OPEN")
        asked = self.wait(questions.first, what="the manager to be asked")
        if (seen := self.evidence(request)).sends:
            raise StoryFailed(f"the provider was asked before the manager has answered: {seen.asked}")
        changed = {"edit-amount": str(amount.amount)} if amount is not None else {}
        self.manager.decide(str(asked.pk), verdict, comment="Seen by the demo.", **changed)

    def link_in_mail(self, request: RefundRequest, name: str) -> str:
        """The link in the mail that asks somebody to decide on a refund."""
        begins = f"{self.place.url}/durableflows/inbox/link/"

        def look() -> str:
            for letter in Store(self.place.mailbox).letters(recipient=f"{name}@example.com"):
                if request.charge.order.number in letter.subject and begins in letter.text:
                    return next(line for line in letter.text.splitlines() if line.startswith(begins))
            return ""

        return self.wait(lambda: look() or None, what=f"the mail to {name}")

    def finish(self, request: RefundRequest, state: RefundState, *, refunds: int) -> Evidence:
        """Wait for the run's end, and compare rows, page, mail and the provider's books."""
        assert request.run_id is not None
        run = self.wait(
            WorkflowRun.objects.filter(pk=request.run_id, ended_at__isnull=False).first, what="the refund to end"
        )
        request.refresh_from_db()
        seen = self.evidence(request)
        if seen.refunds != [request.amount] * refunds or seen.repeated or seen.keys != refunds:
            raise StoryFailed(f"{seen}, {seen.asked}; expected {refunds} of {request.amount}")
        if (run.state, request.state, seen.mails) != ("SUCCEEDED", state, 1):
            raise StoryFailed(f"{seen}, run {run.state}, request {request.state}, {seen.told}; expected {state}")
        page = self.agent.read(f"/orders/{request.charge.order.number}/")
        if f"{request.get_state_display()} Asked for by" not in page:
            raise StoryFailed(f"{seen}, but the order's page does not say {request.get_state_display()!r}: {page}")
        return seen

    def evidence(self, request: RefundRequest) -> Evidence:
        """What the provider and the mail server have of a request."""
        return collect(self.sandbox.books(), Store(self.place.mailbox), request)

    def wait(self, fact: Callable[[], T | None], *, what: str) -> T:
        """Wait for a fact, as long as the demo's processes live."""

        def look() -> T | None:
            for child in self.children:
                if child.is_missed and not child.is_alive and not child.is_observer:
                    raise StoryFailed(child.ending())
            return fact()

        found = wait_until(look, seconds=WAIT_SECONDS, what=what)
        assert found is not None
        return found
