"""The stories that `make demo ARGS=--check` plays: through the pages, on real processes, against the provider's books.

Each story is a function of the stage; it returns what was seen, or raises StoryFailed. What it waits for is a fact in
the rows, never a span of time.
"""

from collections.abc import Callable

import httpx

from customer_ops.celery import app
from customer_ops.demo.evidence import REFUNDS, Evidence
from customer_ops.demo.stage import Stage, StoryFailed
from customer_ops.models import RefundRequest, RefundState
from durableflows import Money
from durableflows.models import ApprovalDecision, ProviderEvent, SideEffect, StepRun


def small_refund(stage: Stage) -> str:
    """Below the limit: nobody is asked."""
    return _end(stage.finish(stage.ask(stage.order(large=False)), RefundState.REFUNDED, refunds=1))


def approved_refund(stage: Stage) -> str:
    """Above the limit: a manager says yes in the admin, to less than was asked for."""
    request = stage.ask(stage.order(large=True))
    asked, less = request.amount, request.amount - Money(100, request.amount.currency)
    stage.decide(request, "approve", amount=less)
    seen = stage.finish(request, RefundState.REFUNDED, refunds=1)
    if (request.amount, request.asked) != (less, asked):
        raise StoryFailed(f"{seen}; the manager has approved {less} of {asked}, and the desk says {request.amount}")
    return f"{_end(seen)}; {asked} were asked for"


def rejected_refund(stage: Stage) -> str:
    """Above the limit: a manager says no in the admin."""
    request = stage.ask(stage.order(large=True))
    stage.decide(request, "reject")
    return _end(stage.finish(request, RefundState.REJECTED, refunds=0))


def decided_by_mail(stage: Stage) -> str:
    """The manager is told by mail. A scanner opens the link and decides nothing; the manager approves there."""
    request = stage.ask(stage.order(large=True))
    link = stage.link_in_mail(request, "manager")
    opened = [httpx.request(method, link).status_code for method in ("HEAD", "GET", "POST") for _ in range(2)]
    if opened != [302] * len(opened) or ApprovalDecision.objects.filter(request__run_id=request.run_id).exists():
        raise StoryFailed(f"a scanner at the link was answered with {opened}, and something was decided")
    stage.manager.decide_at(link, "approve", comment="Seen in the mail.")
    seen = stage.finish(request, RefundState.REFUNDED, refunds=1)
    vote = ApprovalDecision.objects.get(request__run_id=request.run_id)
    if (vote.actor_name, vote.door) != ("manager", "mail link"):
        raise StoryFailed(f"{seen}, decided by {vote.actor_name} by {vote.door}")
    return f"{_end(seen)}; opened {len(opened)} times before"


def lost_answer(stage: Stage) -> str:
    """The provider acts and the connection breaks before its answer; what it tells on its own is lost too."""
    order = stage.order(large=False)
    stage.sandbox.fault("cut_after", path=REFUNDS, charge=order.charges.get().provider_id)
    stage.lose_events(order)
    request = stage.ask(order)
    seen = stage.finish(request, RefundState.REFUNDED, refunds=1)
    if stage.sandbox.faults():
        raise StoryFailed("the provider never broke the connection")
    return f"{_end(seen)}; {seen.asked}"


def pending_refund(stage: Stage) -> str:
    """The provider says "pending"; nobody is told "done" before its webhook does."""
    order = stage.order(large=False)
    stage.sandbox.fault("pending", path=REFUNDS, charge=order.charges.get().provider_id)
    request = stage.ask(order)
    accepted = SideEffect.objects.filter(run_id=request.run_id, effect="payments.refund", state="ACCEPTED")
    row = stage.wait(accepted.first, what="the provider to accept the refund")
    if (seen := stage.evidence(request)).mails:
        raise StoryFailed(f"the provider is not done, and the customer was told: {seen}")
    assert row.receipt is not None
    stage.sandbox.settle(row.receipt["id"], "succeeded")
    seen = stage.finish(request, RefundState.REFUNDED, refunds=1)
    told = ProviderEvent.objects.filter(effect=row)
    stage.wait(told.filter(outcome="happened").first, what="the provider's webhook")
    return f"{_end(seen)}; {told.count()} webhooks"


def killed_child(stage: Stage) -> str:
    """SIGKILL of the process that waits for the answer, after the provider acted."""
    request = stage.hold_answer(stage.order(large=False))
    stage.kill_child(request)
    stage.wait(lambda: _deaths(request), what="the dead process to be noticed")
    stage.sandbox.release()
    return _survived(stage, request)


def killed_worker(stage: Stage) -> str:
    """SIGKILL of the whole worker, its ticker too, after the provider acted; another worker is started."""
    request = stage.hold_answer(stage.order(large=False))
    stage.worker.kill_family()
    stage.sandbox.release()
    stage.start_worker()
    return _survived(stage, request)


def emptied_broker(stage: Stage) -> str:
    """The message that starts the refund is lost with everything else in the broker."""
    stage.worker.end()  # ended, not stopped: Redis hands messages to a stopped worker's open connection
    try:
        request = stage.ask(stage.order(large=False))
        lost = app.control.purge()
    finally:
        stage.start_worker()
    if not lost:
        raise StoryFailed("the broker held no message that could be lost")
    return f"{_end(stage.finish(request, RefundState.REFUNDED, refunds=1))}; {lost} message lost"


def sent_twice(stage: Stage) -> str:
    """The same form arrives twice at the same moment."""
    request = stage.ask(stage.order(large=False), times=2)
    return _end(stage.finish(request, RefundState.REFUNDED, refunds=1))


def mail_refused(stage: Stage) -> str:
    """The mail server reads the mail and says "not now": it is sent again, as the same mail."""
    stage.refuse_next_mail("451 4.3.0 try again later")
    seen = stage.finish(stage.ask(stage.order(large=False)), RefundState.REFUNDED, refunds=1)
    answers = [letter.refusal for letter in seen.letters]
    if answers != ["", "451 4.3.0 try again later"]:
        raise StoryFailed(f"the mail server saw {len(answers)} mails, newest first not taken for: {answers}")
    if len({letter.message_id for letter in seen.letters}) != 1:
        raise StoryFailed(f"the mail came under {[letter.message_id for letter in seen.letters]}")
    return f"{_end(seen)}; refused once, then taken under the same Message-ID"


def _survived(stage: Stage, request: RefundRequest) -> str:
    seen = stage.finish(request, RefundState.REFUNDED, refunds=1)
    if _deaths(request) != 1:
        raise StoryFailed(f"{seen}, but the step counts {_deaths(request)} deaths, not one: it was not killed at work")
    return f"{_end(seen)}; 1 death, {seen.asked}"


def _deaths(request: RefundRequest) -> int:
    return StepRun.objects.get(run_id=request.run_id, name="pay").lost_workers


def _end(seen: Evidence) -> str:
    return f"{seen}, run done, {seen.told}"


STORIES: dict[str, Callable[[Stage], str]] = {
    "small refund": small_refund,
    "large refund, approved": approved_refund,
    "large refund, rejected": rejected_refund,
    "large refund, by mail": decided_by_mail,
    "answer lost": lost_answer,
    "pending, then a webhook": pending_refund,
    "child killed after the act": killed_child,
    "worker killed after the act": killed_worker,
    "broker emptied": emptied_broker,
    "same request twice": sent_twice,
    "mail refused once": mail_refused,
}
"""What is played, in this order."""
