"""What an attempt's outcome leads to, as a table: (snapshot, outcome) -> Decision."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from durableflows.core import decide
from durableflows.core.approval import ApprovalSpec, Escalate, Facts, Fallback
from durableflows.core.decide import LOST_WORKERS_CAP, Snapshot
from durableflows.core.definition import Retry, StepDefinition, StepKind
from durableflows.core.directives import Fail, Goto, Succeed
from durableflows.core.outcomes import (
    Asked,
    Done,
    ErrorInfo,
    Failed,
    FailureKind,
    Halted,
    InDoubt,
    Outcome,
    Question,
    Refused,
    Waits,
)
from durableflows.core.reconcile import Move, Next
from durableflows.core.states import STEP_MOVES, EndingReason, ParkedReason, StepState

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
ERROR = ErrorInfo("ValueError", "code", "went wrong")
RETRY = Retry(attempts=3, base_seconds=2, cap_seconds=60, within=timedelta(hours=1))
PAY = StepDefinition(name="pay", kind=StepKind.TASK, retry=RETRY)


def snapshot(step: StepDefinition = PAY, **changes: object) -> Snapshot:
    values: dict[str, object] = {
        "step": step,
        "attempts": 1,
        "lost_workers": 0,
        "tries_since": NOW,
        "is_in_doubt": False,
        "is_accepted": False,
        **changes,
    }
    return Snapshot(**values)  # type: ignore[arg-type]


def after(outcome: Outcome, step: StepDefinition = PAY, **changes: object) -> decide.Decision:
    return decide.after_step(snapshot(step, **changes), outcome, NOW, Random(1))


def failed(kind: FailureKind, retry_after_seconds: float | None = None) -> Failed:
    return Failed(kind, ERROR, retry_after_seconds)


OUTCOMES: list[Outcome] = [
    Done(Goto(("next",)), {}),
    Done(Succeed({"a": 1}), {}),
    Done(Fail("no"), {}),
    Waits("later"),
    Asked(Question("t", {}, {})),
    Refused("no"),
    InDoubt(ERROR),
    Halted(),
    *[failed(kind) for kind in FailureKind],
]


def name_of(outcome: Outcome) -> str:
    return f"{type(outcome).__name__} {getattr(outcome, 'kind', '')}".strip()


@pytest.mark.parametrize("outcome", OUTCOMES, ids=name_of)
def test_no_outcome_ends_a_step_in_doubt(outcome: Outcome):
    """P15: whatever the body says, doubt is settled first."""
    decision = after(outcome, is_in_doubt=True)

    assert decision.verb == "reconcile"
    assert (decision.end, decision.park, decision.next_steps, decision.data) == (None, None, (), None)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=name_of)
def test_no_outcome_ends_a_step_that_waits_for_a_provider(outcome: Outcome):
    """P15: ACCEPTED is open."""
    decision = after(outcome, is_accepted=True)

    assert decision.verb in ("wait", "reconcile", "make_ready")
    assert (decision.end, decision.park, decision.next_steps, decision.data) == (None, None, (), None)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=name_of)
@pytest.mark.parametrize("is_in_doubt", [True, False])
def test_every_move_is_legal_for_a_running_step(outcome: Outcome, is_in_doubt: bool):
    """The data of `core.states` is what the model allows."""
    decision = after(outcome, is_in_doubt=is_in_doubt)

    assert decision.verb is not None
    assert StepState.RUNNING in STEP_MOVES[decision.verb][0]


def test_done_goes_on_with_its_state():
    """S3.30."""
    decision = after(Done(Goto(("a", "b")), {"x": 1}))

    assert (decision.verb, decision.next_steps, decision.data) == ("succeed", ("a", "b"), {"x": 1})
    assert decision.end is None


def test_succeed_ends_the_run_with_a_result():
    decision = after(Done(Succeed({"refund": "re_1"}), {}))

    assert decision.verb == "succeed"
    assert decision.end is not None
    assert (decision.end.verb, decision.end.reason, decision.end.result) == ("succeed", None, {"refund": "re_1"})


def test_fail_ends_the_run_when_its_effects_are_settled():
    decision = after(Done(Fail("no such charge"), {}))

    assert decision.end is not None
    assert (decision.end.verb, decision.end.reason) == ("fail", EndingReason.FAILURE)
    assert decision.end.error is not None
    assert decision.end.error.text == "no such charge"


@pytest.mark.parametrize("kind", [FailureKind.TRANSIENT, FailureKind.NEVER_SENT])
@pytest.mark.parametrize(
    ("changes", "retry_after", "is_retried"),
    [
        ({"attempts": 1}, None, True),
        ({"attempts": 2}, None, True),
        ({"attempts": 3}, None, False),
        ({"attempts": 4}, None, False),
        ({"tries_since": NOW - timedelta(minutes=59)}, None, True),
        ({"tries_since": NOW - timedelta(minutes=61)}, None, False),
        ({"attempts": 1}, 600.0, True),
        ({"attempts": 1}, 3601.0, False),
    ],
)
def test_tries_are_bounded_in_number_and_time(kind: FailureKind, changes, retry_after, is_retried: bool):
    """S2.6, S3.7: a Retry-After is never shortened; past the limits it is a person's matter."""
    decision = after(failed(kind, retry_after), **changes)

    if is_retried:
        assert decision.verb == "schedule_retry"
        assert decision.wake_at is not None
        assert decision.delay_seconds is not None
        assert decision.wake_at == NOW + timedelta(seconds=decision.delay_seconds)
        assert decision.delay_seconds >= max(retry_after or 0, 0.1)
        assert not decision.forgives, "rule 12: a send given up at send_by counts as an attempt"
    else:
        assert decision.verb == "make_ready"
        assert decision.park is not None
        assert decision.park.reason is ParkedReason.NEEDS_PERSON
        assert "went wrong" in decision.park.detail


def test_tries_that_are_used_up_lead_to_the_declared_step():
    step = StepDefinition(name="pay", kind=StepKind.TASK, retry=RETRY, on_failure="tell")

    decision = after(failed(FailureKind.TRANSIENT), step, attempts=3)

    assert (decision.verb, decision.next_steps, decision.park) == ("fail", ("tell",), None)


@pytest.mark.parametrize("on_failure", [None, "tell"])
def test_permanent_is_never_tried_again(on_failure: str | None):
    """S1.6, S3.8."""
    step = StepDefinition(name="pay", kind=StepKind.TASK, retry=RETRY, on_failure=on_failure)

    decision = after(failed(FailureKind.PERMANENT), step)

    assert decision.verb == "fail"
    assert decision.next_steps == ((on_failure,) if on_failure else ())
    assert (decision.end is None) is bool(on_failure)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FailureKind.OUR_CODE, ParkedReason.OUR_CODE),
        (FailureKind.KEY_CONFLICT, ParkedReason.OUR_CODE),
        (FailureKind.NEEDS_HUMAN, ParkedReason.NEEDS_PERSON),
        (FailureKind.INTEGRITY, ParkedReason.INTEGRITY),
    ],
)
def test_what_nobody_can_retry_is_parked_with_its_error(kind: FailureKind, reason: ParkedReason):
    """S1.10: No retry, no failure step, no compensation (design, section 5)."""
    step = StepDefinition(name="pay", kind=StepKind.TASK, retry=RETRY, on_failure="tell")

    decision = after(failed(kind), step)

    assert decision.verb == "make_ready"
    assert decision.park is not None
    assert decision.park.reason is reason
    assert "went wrong" in decision.park.detail
    assert decision.next_steps == ()


def test_a_budget_ends_the_run():
    decision = after(failed(FailureKind.LIMIT))

    assert decision.end is not None
    assert (decision.verb, decision.end.verb, decision.end.reason) == ("cancel", "exhaust_budget", EndingReason.BUDGET)


def test_a_refusal_leads_to_its_step_or_to_a_person():
    declared = StepDefinition(name="pay", kind=StepKind.TASK, on_refused="tell")

    assert after(Refused("sold"), declared).next_steps == ("tell",)
    park = after(Refused("sold")).park
    assert park is not None
    assert (park.reason, park.detail) == (ParkedReason.NEEDS_PERSON, "pay: sold")


def test_a_question_waits_for_a_person():
    question = Question("Pay 5?", {"amount": 5}, {})

    decision = after(Asked(question))

    assert (decision.verb, decision.question) == ("wait_human", question)


def test_waiting_for_a_provider_costs_no_try():
    decision = after(Waits("pending"))

    assert (decision.verb, decision.forgives, decision.wake_at) == ("wait", True, NOW)


def test_doubt_is_looked_at_after_a_pause_and_counts_as_a_try():
    decision = after(InDoubt(ERROR, retry_after_seconds=90))

    assert decision.verb == "reconcile"
    assert not decision.forgives
    assert decision.wake_at is not None
    assert decision.wake_at >= NOW + timedelta(seconds=90)
    assert decision.error == ERROR


def test_a_halted_step_costs_no_try_and_in_doubt_it_is_reconciled():
    """Protocol, rule 10: a cancelled step in doubt may not be READY, nobody could claim it."""
    assert after(Halted()).verb == "make_ready"
    assert after(Halted()).forgives
    assert after(Halted(), is_in_doubt=True).verb == "reconcile"


@pytest.mark.parametrize(
    ("changes", "verb", "is_parked"),
    [
        ({"lost_workers": 0}, "make_ready", False),
        ({"lost_workers": LOST_WORKERS_CAP - 2}, "make_ready", False),
        ({"lost_workers": LOST_WORKERS_CAP - 1}, "make_ready", True),
        ({"lost_workers": LOST_WORKERS_CAP + 5}, "make_ready", True),
        ({"lost_workers": LOST_WORKERS_CAP - 1, "is_in_doubt": True}, "reconcile", False),
        ({"lost_workers": LOST_WORKERS_CAP - 1, "is_accepted": True}, "wait", False),
    ],
)
def test_a_lost_worker(changes, verb: str, is_parked: bool):
    """Protocol, rule 6; R05."""
    decision = decide.after_loss(snapshot(**changes), "it died")

    assert (decision.verb, decision.park is not None) == (verb, is_parked)
    assert decision.lost_worker
    assert decision.forgives
    assert StepState.RUNNING in STEP_MOVES[verb][0]


@pytest.mark.parametrize(
    ("changes", "verb", "is_parked", "forgives"),
    [
        ({"attempts": 1}, "schedule_retry", False, False),
        ({"attempts": 3}, "make_ready", True, False),
        ({"attempts": 1, "lost_workers": LOST_WORKERS_CAP - 1}, "make_ready", True, True),
        ({"is_in_doubt": True}, "reconcile", False, True),
        ({"is_accepted": True}, "wait", False, True),
    ],
)
def test_a_process_that_was_ended_at_the_hard_limit(changes, verb: str, is_parked: bool, forgives: bool):
    """R07: a time-out that counts as a try, within the step's tries; and a lost worker, within their number."""
    decision = decide.after_overrun(snapshot(**changes), NOW, Random(0))

    assert (decision.verb, decision.park is not None, decision.forgives) == (verb, is_parked, forgives)
    assert decision.lost_worker
    assert StepState.RUNNING in STEP_MOVES[verb][0]
    if not forgives:
        assert decision.error is not None
        assert decision.error.error_class == "TimeoutError"


@pytest.mark.parametrize(
    ("changes", "may"),
    [
        ({}, True),
        ({"attempts": 3}, False),
        ({"tries_since": NOW - timedelta(hours=2)}, False),
        ({"lost_workers": LOST_WORKERS_CAP - 1}, True),
        ({"lost_workers": LOST_WORKERS_CAP}, False),
    ],
)
def test_an_effect_in_doubt_may_be_sent_again(changes, may: bool):
    """R05: not by a step that kills its workers, whose starts are forgiven each time."""
    assert snapshot(**changes).may_send_again(NOW) is may


@pytest.mark.parametrize(("verdict", "target"), [("approve", "pay"), ("reject", "tell"), ("expire", "tell")])
def test_an_answer_leads_where_it_is_declared(verdict: str, target: str):
    spec = ApprovalSpec(title="t", shows=lambda run: Facts({}), permission="p", approved="pay", rejected="tell")
    step = StepDefinition(name="sign_off", kind=StepKind.APPROVAL, approval=spec)

    decision = decide.after_answer(step, verdict, "ada")

    assert (decision.verb, decision.next_steps) == ("succeed", (target,))
    assert decision.output == {"verdict": verdict, "by": "ada"}


@pytest.mark.parametrize(("verdict", "target"), [("approve", "pay"), ("reject", "tell"), ("expire", "later")])
def test_only_silence_leads_to_the_fallback(verdict: str, target: str):
    spec = ApprovalSpec(
        title="t",
        shows=lambda run: Facts({}),
        permission="p",
        approved="pay",
        rejected="tell",
        on_expiry=Escalate("q", then=Fallback("later")),
    )
    step = StepDefinition(name="sign_off", kind=StepKind.APPROVAL, approval=spec)

    assert decide.after_answer(step, verdict, "").next_steps == (target,)
    assert spec.targets == ("pay", "tell", "later")


def test_what_nobody_needs_to_be_asked_goes_on_as_if_approved():
    spec = ApprovalSpec(title="t", shows=lambda run: Facts({}), permission="p", approved="pay", rejected="tell")
    step = StepDefinition(name="sign_off", kind=StepKind.APPROVAL, approval=spec)
    question = Question("Grant", {}, {}, unneeded="up to USD 5.00")

    decision = decide.after_step(snapshot(step=step), Asked(question), NOW, Random(0))

    assert (decision.verb, decision.next_steps, decision.question) == ("succeed", ("pay",), question)
    assert decision.reason == "nobody needs to be asked, up to USD 5.00: Grant"


@pytest.mark.parametrize(
    ("next_", "verb", "needs_person"),
    [
        (Next.SETTLED, "make_ready", False),
        (Next.RESEND, "make_ready", False),
        (Next.LOOK_UP, None, False),
        (Next.WAIT, None, False),
        (Next.PERSON, None, True),
    ],
)
def test_a_look_at_an_unsettled_step(next_: Next, verb: str | None, needs_person: bool):
    decision = decide.after_look(Move(next_, NOW, "why"))

    assert (decision.verb, decision.needs_person, decision.wake_at) == (verb, needs_person, NOW)
