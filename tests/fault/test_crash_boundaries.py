"""The process dies at each boundary there is, once or for ever; what is left is enough for the others to go on.

Each member of `Boundary` has its story: what must be happening for a worker, a door or a ticker to come by there. The
run asks a person, pays, and writes a mail. A dead worker's lease runs out; nothing else is repaired by hand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.test import override_settings

from durableflows import (
    NeverSent,
    UnknownOutcome,
    Workflow,
    api,
)
from durableflows.core.states import ApprovalState, EffectState, RunState, StepState
from durableflows.models import ApprovalRequest, SideEffect, StepRun, WorkflowRun
from durableflows.services.notices import TAKEN_SECONDS
from durableflows.testing import Boundary, Crash, World, crash_at, next_due
from tests.support.flows import (
    PayReceipt,
    Provider,
    act_then_raise,
    answer_pending,
    pay_effect,
    raise_without_acting,
    read_event,
    told,
)
from tests.support.orders import OrderState, book_effect, mail_effect, order_workflow, return_effect
from tests.support.play import assert_sound, state_of
from tests.support.told_people import KEEPER

pytestmark = pytest.mark.django_db(transaction=True)

PROVIDERS = {"keys": (True, True), "lookup only": (False, True), "neither": (False, False)}


@dataclass
class Desk:
    """A run, its two providers, and a manager who answers whatever is asked."""

    world: World
    manager: Any
    pays: Provider
    mails: Provider
    returns: Provider
    books: Provider
    workflow: type[Workflow[OrderState]]
    run_id: Any = None
    deaths: int = 0

    def start(self, parts: Sequence[str] = ()) -> None:
        run = api.start(self.workflow, {"amount": 5, "parts": list(parts)}, key="order:1")
        self.run_id = run.pk

    def answer(self) -> None:
        request = ApprovalRequest.objects.filter(run_id=self.run_id, state=ApprovalState.OPEN).first()
        if request is not None:
            api.answer(request.pk, "approve", by=self.manager, facts_digest=request.facts_digest)

    def survive(self, act: Callable[[], None]) -> bool:
        """Do something; when the process dies of it, a new one comes, and every message of the old one is lost."""
        try:
            act()
        except Crash:
            self.deaths += 1
            self.world.lose_messages()
            return False
        return True

    def go_on(self) -> None:
        """Workers and tickers come and go, the manager answers, until nothing is due any more."""
        for _ in range(80):
            if not (self.survive(self.world.run_until_idle) and self.survive(self.answer)):
                continue
            due = next_due()
            if self.world.messages or due is None:
                if not self.world.messages and not self._may_answer() and not self._overdue():
                    return
                continue
            self.world.clock.move_to(due + timedelta(seconds=1))
        raise AssertionError("still busy")

    def _may_answer(self) -> bool:
        return ApprovalRequest.objects.filter(run_id=self.run_id, state=ApprovalState.OPEN).exists()

    def _overdue(self) -> bool:
        steps = StepRun.objects.filter(run_id=self.run_id, state__in=[StepState.READY, StepState.RUNNING])
        return steps.filter(run__parked_reason="").exists()

    def effect(self, name: str) -> SideEffect:
        return SideEffect.objects.filter(run_id=self.run_id, effect=name).order_by("-issue")[0]


@pytest.fixture(params=sorted(PROVIDERS))
def desk(request, world: World, django_user_model) -> Desk:
    keyed, lookup = PROVIDERS[request.param]
    pays, mails, returns = Provider(keyed=keyed), Provider(keyed=keyed), Provider(keyed=keyed)
    window = timedelta(hours=24) if keyed else None
    options = {"key_window": window, "with_lookup": lookup, "resend_when_absent": lookup, "event": read_event}
    pay_it = pay_effect(pays, undo=return_effect(returns, keyed=keyed, lookup=lookup), **options)  # type: ignore[arg-type]
    mail_it = mail_effect(mails, keyed=keyed, lookup=lookup)
    manager = django_user_model.objects.create_superuser("manager", password="x")
    books = Provider()
    workflow = order_workflow(pay_it, mail_it, book_effect(books))
    return Desk(world, manager, pays, mails, returns, books, workflow)


# Stories: what brings a process to the boundary, and what it does there.


def straight(desk: Desk) -> None:
    """Nothing goes wrong but the crash."""
    desk.start()
    desk.survive(desk.world.run_until_idle)


def starting(desk: Desk) -> None:
    """The caller dies while it starts the run, and asks again as callers with a key do."""
    if not desk.survive(desk.start):
        desk.start()


def answering(desk: Desk) -> None:
    """The manager's page dies; the manager presses again."""
    desk.start()
    desk.world.run_until_idle()
    desk.survive(desk.answer)


def failing(desk: Desk) -> None:
    """The provider cannot be reached at first, so that a timer must wake the step."""
    desk.pays.faults = [raise_without_acting(NeverSent("refused"))]
    desk.start()


def doubting(desk: Desk) -> None:
    """The answer to the payment is lost, and no second send is possible: somebody must be asked."""
    desk.pays.faults = [act_then_raise(UnknownOutcome("read timed out"))] + [act_then_raise(UnknownOutcome("?"))] * 3
    desk.start()


def cancelling(desk: Desk) -> None:
    """A person cancels while the payment is out; the page dies; the person presses again."""
    desk.pays.faults = [act_then_raise(UnknownOutcome("read timed out"))]
    desk.start()
    desk.world.run_until_idle()
    desk.answer()
    desk.world.run_until_idle()
    if not desk.survive(lambda: _cancel(desk)):
        _cancel(desk)


def calling_off(desk: Desk) -> None:
    """A person cancels while nothing is under way, so that the clean-up begins at once; the person presses again."""
    desk.start()
    desk.world.run_until_idle()
    if not desk.survive(lambda: _cancel(desk)):
        _cancel(desk)


def taking_back(desk: Desk) -> None:
    """A person cancels when it is paid, so that the payment is undone at once; the person presses again."""
    desk.mails.faults = [raise_without_acting(NeverSent("refused"))] * 2
    desk.start()
    desk.world.run_until_idle()
    desk.answer()
    desk.world.run_until_idle()
    desk.world.clock.advance(seconds=60)  # all that was sent has landed
    if not desk.survive(lambda: _cancel(desk)):
        _cancel(desk)


def signalling(desk: Desk) -> None:
    """Somebody tells the run that it may begin; the sender dies, and sends again under the same key."""
    desk.start(parts=["signal"])
    desk.world.run_until_idle()
    if not desk.survive(lambda: _signal(desk)):
        _signal(desk)


def _signal(desk: Desk) -> None:
    api.signal(desk.run_id, "begin", dedup_key="webhook 1")


def being_told(desk: Desk) -> None:
    """The provider accepts the payment and tells later that it is done; whom it tells dies, and it tells again."""
    desk.pays.faults = [answer_pending]
    desk.start()
    desk.world.run_until_idle()
    desk.answer()
    desk.world.run_until_idle()
    if not desk.survive(lambda: _tell(desk)):
        _tell(desk)


def _tell(desk: Desk) -> None:
    key = desk.effect("test.pay").key
    desk.pays.known[key] = PayReceipt(id="pay_1")
    api.provider_event("test", "evt_1", told("done", key=key))


def operating(desk: Desk) -> None:
    """An operator pauses the run and lets it go on; the page dies, and the operator presses again."""
    desk.start()
    desk.world.run_until_idle()
    for verb in (api.pause, api.resume):
        act = partial(_operate, desk, verb)
        if not desk.survive(act):
            act()


def _operate(desk: Desk, verb: Callable[..., object]) -> None:
    verb(desk.run_id, reason="stock is counted")


def handing_on(desk: Desk) -> None:
    """The request is put before the manager; who does that dies, and does it again."""
    desk.start()
    desk.world.run_until_idle()
    for _ in range(2):
        desk.survive(partial(_hand_on, desk))


def _hand_on(desk: Desk) -> None:
    request = ApprovalRequest.objects.filter(run_id=desk.run_id, state=ApprovalState.OPEN).first()
    if request is not None:
        api.reassign(request.pk, desk.manager, reason="on duty")


def telling(desk: Desk) -> None:
    """The manager is told that a decision is asked for; whoever does that dies."""
    with override_settings(DURABLEFLOWS={"NOTIFIERS": [KEEPER]}):
        desk.start()
        for _ in range(2):
            desk.survive(desk.world.run_until_idle)
            desk.world.clock.advance(seconds=TAKEN_SECONDS)


def beginning_a_child(desk: Desk) -> None:
    """The run starts another one first, and goes on when that has ended."""
    desk.start(parts=["child"])


def _cancel(desk: Desk) -> None:
    run = WorkflowRun.objects.get(pk=desk.run_id)
    if run.ended_at is None:
        api.cancel(desk.run_id, reason="changed my mind")


STORIES: dict[Boundary, Callable[[Desk], None]] = {
    Boundary.START_BEFORE_COMMIT: starting,
    Boundary.START_BEFORE_SEND: starting,
    Boundary.CLAIM_BEFORE_COMMIT: straight,
    Boundary.CLAIM_AFTER_COMMIT: straight,
    Boundary.EFFECT_BEFORE_RESERVE: straight,
    Boundary.EFFECT_AFTER_RESERVE: straight,
    Boundary.EFFECT_AFTER_ANSWER: straight,
    Boundary.EFFECT_AFTER_RECEIPT: straight,
    Boundary.TOGETHER_BEFORE_COMMIT: straight,
    Boundary.SETTLE_BEFORE_COMMIT: straight,
    Boundary.SETTLE_BEFORE_SEND: straight,
    Boundary.ANSWER_BEFORE_COMMIT: answering,
    Boundary.ANSWER_AFTER_COMMIT: answering,
    Boundary.CANCEL_BEFORE_COMMIT: cancelling,
    Boundary.CANCEL_AFTER_COMMIT: cancelling,
    Boundary.CLEANUP_BEFORE_COMMIT: calling_off,
    Boundary.CLEANUP_BEFORE_SEND: calling_off,
    Boundary.UNDO_BEFORE_COMMIT: taking_back,
    Boundary.UNDO_BEFORE_SEND: taking_back,
    Boundary.TIMER_BEFORE_COMMIT: failing,
    Boundary.TIMER_AFTER_COMMIT: failing,
    Boundary.SIGNAL_BEFORE_COMMIT: signalling,
    Boundary.SIGNAL_AFTER_COMMIT: signalling,
    Boundary.CROSSING_BEFORE_COMMIT: beginning_a_child,
    Boundary.CROSSING_AFTER_COMMIT: beginning_a_child,
    Boundary.PROVIDER_EVENT_BEFORE_COMMIT: being_told,
    Boundary.PROVIDER_EVENT_AFTER_COMMIT: being_told,
    Boundary.EVENT_JUDGED_BEFORE_COMMIT: being_told,
    Boundary.EVENT_JUDGED_AFTER_COMMIT: being_told,
    Boundary.PEOPLE_BEFORE_COMMIT: handing_on,
    Boundary.PEOPLE_AFTER_COMMIT: handing_on,
    Boundary.NOTICE_BEFORE_COMMIT: telling,
    Boundary.NOTICE_TAKEN: telling,
    Boundary.NOTICE_GIVEN: telling,
    Boundary.OPERATE_BEFORE_COMMIT: operating,
    Boundary.OPERATE_AFTER_COMMIT: operating,
    Boundary.LOOKUP_BEFORE_COMMIT: doubting,
    Boundary.LOOKUP_AFTER_COMMIT: doubting,
}
NEVER_LOOKS_UP = {Boundary.LOOKUP_BEFORE_COMMIT, Boundary.LOOKUP_AFTER_COMMIT}
NEEDS_SETTLING = {Boundary.EFFECT_AFTER_RESERVE, Boundary.EFFECT_AFTER_ANSWER}


def test_each_boundary_has_a_story():
    """House rule: a new transaction or outside call is a new boundary, with its crash test."""
    assert set(STORIES) == set(Boundary)


@pytest.mark.parametrize("boundary", list(Boundary), ids=lambda boundary: boundary.name.lower())
def test_a_crash_at_a_boundary_leaves_rows_from_which_the_run_goes_on(desk: Desk, boundary: Boundary, request):
    """S2.3, S2.42, S3.35, P1 to P5, P10, P13, P15, R14: at most one act a key, then an end, or a person."""
    has_lookup = "neither" not in request.node.callspec.id

    with crash_at(boundary):
        STORIES[boundary](desk)
        desk.go_on()

    if boundary in NEVER_LOOKS_UP and not has_lookup:
        assert desk.deaths == 0  # nobody can be asked, so nobody comes by there
    else:
        assert desk.deaths == 1, "no process came by this boundary: the story proves nothing"
    assert_ends_well(desk)


@pytest.mark.parametrize("desk", ["neither"], indirect=True)
@pytest.mark.parametrize("boundary", sorted(NEEDS_SETTLING), ids=lambda boundary: boundary.name.lower())
def test_a_payment_in_doubt_at_a_provider_without_keys_or_lookup_waits_for_a_person(desk: Desk, boundary: Boundary):
    """S1.9, R14: it is never sent again by itself, whether it acted or not; the person's word decides."""
    with crash_at(boundary):
        straight(desk)
        desk.go_on()
    row = desk.effect("test.pay")
    assert row.state == EffectState.UNKNOWN
    assert StepRun.objects.get(run_id=desk.run_id, name="pay").needs_person
    sends = list(desk.pays.sends)
    assert len(sends) == (1 if boundary is Boundary.EFFECT_AFTER_ANSWER else 0)

    happened = {"id": "pay_1"} if desk.pays.acts else None
    verdict = "happened" if happened else "did_not_happen"
    api.resolve_effect(row.pk, verdict, reason="I looked", row_version=row.row_version, receipt=happened)
    desk.go_on()

    assert state_of(desk.run_id) is RunState.SUCCEEDED
    assert len(desk.pays.acts) == 1
    assert_ends_well(desk)


@pytest.mark.parametrize("boundary", list(Boundary), ids=lambda boundary: boundary.name.lower())
def test_a_boundary_that_kills_again_and_again_ends_in_no_loop(desk: Desk, boundary: Boundary):
    """R05, P10: the same place kills whoever comes by, again and again, until it is repaired."""
    try:
        with crash_at(boundary, times=12):
            STORIES[boundary](desk)
            desk.go_on()
    except Crash:
        pass  # a caller that dies of each of its own calls has nothing to go on with
    if desk.run_id is None:
        desk.start()
    if STORIES[boundary] is signalling:
        _signal(desk)
    if STORIES[boundary] is being_told:
        _tell(desk)
    desk.go_on()
    assert_ends_well(desk)


def assert_ends_well(desk: Desk) -> None:
    """The books of both providers, and how the run ended or why it waits."""
    run = WorkflowRun.objects.get(pk=desk.run_id)
    assert WorkflowRun.objects.filter(parent__isnull=True).count() == 1
    assert WorkflowRun.objects.filter(parent=run).count() == (1 if "child" in run.data["parts"] else 0)
    assert len(desk.pays.acts) <= 1
    assert len(desk.mails.acts) <= 1
    assert len(desk.returns.acts) <= len(desk.pays.acts)
    both = Provider(acts=[*desk.pays.acts, *desk.mails.acts, *desk.returns.acts, *desk.books.acts])
    assert_sound(run.pk, both)
    if run.ended_at is None:
        waits = StepRun.objects.filter(run=run, needs_person=True).exists()
        assert (waits and run.alert) or (run.parked_reason and run.parked_detail), "nobody is told what it waits for"
    elif run.state == RunState.SUCCEEDED:
        assert len(desk.pays.acts) == len(desk.mails.acts) == 1
        assert run.data["receipt_id"]
        assert run.data["mail_id"]
    else:
        assert run.state == (RunState.COMPENSATED if desk.pays.acts else RunState.CANCELLED)
        assert len(desk.returns.acts) == len(desk.pays.acts)
        assert desk.mails.acts == []
        assert StepRun.objects.get(run=run, name="take_back").state == StepState.SUCCEEDED or run.cleanup_error
