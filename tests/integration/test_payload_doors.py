"""Whatever text and numbers come in by whichever door: refused by name, or stored whole, or stored marked (R30).

Facts are marked and never lost: receipts, errors, results, signals. What somebody gives us to keep is refused where it
cannot be kept: state, requests to providers, names, comments. Either way the run does not stay running.
"""

from typing import Any

import pytest
from django.contrib.auth.models import User

from durableflows import (
    InvalidState,
    Permanent,
    Run,
    StepReturn,
    Transient,
    UnknownOutcome,
    Workflow,
    api,
    child,
    doctor,
    each,
    fail,
    succeed,
    wait_for,
)
from durableflows.core.states import EffectState, ParkedReason, RunState, StepState
from durableflows.models import ApprovalDecision, EffectSend, RunEvent, SideEffect, Signal, StepRun, WorkflowRun
from durableflows.testing import World, open_request
from tests.support.boxes import (
    CLOSE,
    HEARD,
    ITEM,
    SIGN_OFF,
    Body,
    Box,
    Outside,
    Slip,
    boxing,
    giving,
    putting,
    send,
    sending,
)
from tests.support.look import fresh, state_of

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]

TEXTS = {"NUL": "a\x00b", "surrogate": "a\ud800b", "emoji": "\U0001f600 ü", "literal": "a\\u0000b"}
MARKED = {"NUL": "a⟦U+0000⟧b", "surrogate": "a⟦U+D800⟧b", "emoji": "\U0001f600 ü", "literal": "a\\u0000b"}
CAN_BE_STORED = ("emoji", "literal")


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outside, "sent", [])
    monkeypatch.setattr(Outside, "answer", lambda: Slip(id="ok"))


def play(world: World, flow: type[Workflow[Box]], state: dict[str, object] | None = None) -> WorkflowRun:
    run = api.start(flow, state or {})
    world.run_through()
    assert not StepRun.objects.filter(state=StepState.RUNNING).exists()
    assert not [one for one in doctor.examine(run.pk) if one.severity is doctor.Severity.BROKEN]
    return fresh(run)


def assert_refused(run: WorkflowRun, *words: str) -> None:
    """Parked with an error in our code that names what was wrong."""
    assert (run.state, run.parked_reason) == (RunState.PARKED, ParkedReason.OUR_CODE)
    assert [word for word in words if word not in run.parked_detail] == []


@pytest.mark.parametrize("kind", TEXTS)
def test_state(world: World, kind: str):
    """R30: as input a field error, in a step an error in our code."""
    flow, text = boxing(putting(TEXTS[kind])), TEXTS[kind]

    if kind in CAN_BE_STORED:
        assert play(world, flow, {"text": text}).data["text"] == text
    else:
        with pytest.raises(InvalidState) as refused:
            api.start(flow, {"text": text})
        assert [path for path, _ in refused.value.problems] == ["text"]
        assert not WorkflowRun.objects.exists()
        assert_refused(play(world, flow), "text")


@pytest.mark.parametrize("kind", TEXTS)
def test_step_return_and_note(world: World, kind: str):
    def body(run: Run[Box]) -> StepReturn:
        run.note(TEXTS[kind])
        return succeed({TEXTS[kind]: [TEXTS[kind]]})

    run = play(world, boxing(body))

    assert run.state == RunState.SUCCEEDED
    assert run.result == {MARKED[kind]: [MARKED[kind]]}
    assert RunEvent.objects.get(run=run, kind="run.note").data["text"] == MARKED[kind]


@pytest.mark.parametrize("kind", TEXTS)
def test_result_of_an_item_and_its_key(world: World, kind: str):
    run = play(world, boxing(lambda run: each(ITEM, [TEXTS[kind]], key=str, then=CLOSE)))
    if kind in CAN_BE_STORED:
        assert run.state == RunState.SUCCEEDED
        assert StepRun.objects.get(run=run, name="item").output == TEXTS[kind]
    else:
        assert_refused(run)


@pytest.mark.parametrize("kind", TEXTS)
def test_effect_request(world: World, kind: str):
    """R30: it is refused before its intent is written, and nothing is sent."""
    run = play(world, boxing(sending(TEXTS[kind])))

    if kind in CAN_BE_STORED:
        assert run.state == RunState.SUCCEEDED
        assert Outside.sent == [TEXTS[kind]]
        assert SideEffect.objects.get().arguments == {"text": TEXTS[kind]}
    else:
        assert_refused(run, "text")
        assert Outside.sent == []
        assert not SideEffect.objects.exists()


@pytest.mark.parametrize("kind", TEXTS)
def test_receipt(world: World, kind: str, monkeypatch: pytest.MonkeyPatch):
    """R30: stored marked; a body that runs again is given what is stored."""
    monkeypatch.setattr(Outside, "answer", lambda: Slip(id=TEXTS[kind]))
    run = play(world, boxing(sending("x")))

    row = SideEffect.objects.get()
    assert (row.state, row.receipt) == (EffectState.CONFIRMED, {"id": MARKED[kind]})
    assert (run.state, run.result) == (RunState.SUCCEEDED, MARKED[kind])


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("kind", "error"),
    [("NUL", RuntimeError), ("surrogate", Transient), ("NUL", Permanent), ("surrogate", UnknownOutcome)]
    + [(kind, RuntimeError) for kind in CAN_BE_STORED],
)
@pytest.mark.parametrize("inside", [True, False], ids=["in an effect", "in a step"])
def test_error(world: World, kind: str, error: type[Exception], inside: bool, monkeypatch: pytest.MonkeyPatch):
    """R30: the failure is recorded whatever its text is."""

    def fails(*_: object) -> Any:
        raise error(TEXTS[kind])

    monkeypatch.setattr(Outside, "answer", fails)
    run = play(world, boxing(sending("x") if inside else fails))

    rows = EffectSend if inside else StepRun
    assert MARKED[kind] in set(rows.objects.values_list("error_text", flat=True))
    assert run.state in (RunState.PARKED, RunState.FAILED, RunState.NEEDS_RECONCILIATION)


def test_an_error_that_cannot_be_told_is_recorded_all_the_same(world: World):
    """R30: its text cannot be had, or is endless."""
    errors = [Unspeakable(), RuntimeError("x" * 1_000_000)]

    def body(run: Run[Box]) -> StepReturn:
        raise errors.pop(0)

    run = play(world, boxing(body))
    assert_refused(run, "Unspeakable (its text cannot be shown)")
    api.retry(run.pk, reason="again")
    world.run_until_idle()
    assert_refused(fresh(run), "x" * 100)
    assert len(StepRun.objects.get(run=run).error_text) == 2000


@pytest.mark.parametrize("kind", TEXTS)
def test_signal(world: World, kind: str):
    """R30: its payload is a fact and marked; its name and key are ours and refused."""
    run = api.start(boxing(lambda run: wait_for("go", then=HEARD)), {})
    world.run_until_idle()
    if kind not in CAN_BE_STORED:
        for wrong in ({"name": TEXTS[kind]}, {"name": "go", "dedup_key": TEXTS[kind]}):
            with pytest.raises(InvalidState, match=r"NUL or a lone surrogate"):
                api.signal(run.pk, **wrong)

    api.signal(run.pk, "go", {TEXTS[kind]: TEXTS[kind]})
    world.run_until_idle()

    assert Signal.objects.get().payload == {MARKED[kind]: MARKED[kind]}
    assert fresh(run).result == {MARKED[kind]: MARKED[kind]}


@pytest.mark.parametrize("kind", TEXTS)
def test_facts_and_comment_of_an_answer(
    world: World, kind: str, django_user_model: type[User], monkeypatch: pytest.MonkeyPatch
):
    """R30: what is asked is marked, so that somebody is asked; a comment is refused, and can be given again."""
    boss = django_user_model.objects.create_superuser("boss")
    monkeypatch.setattr(Outside, "shown", TEXTS[kind])
    run = api.start(boxing(lambda run: SIGN_OFF), {})
    world.run_until_idle()
    request = open_request(run.pk)
    assert (request.title, request.binding) == (f"About {MARKED[kind]}", {"text": MARKED[kind]})

    def reject(comment: str) -> None:
        api.answer(request.pk, "reject", by=boss, facts_digest=request.facts_digest, comment=comment)

    if kind not in CAN_BE_STORED:
        with pytest.raises(InvalidState, match=r"the comment contains U\+"):
            reject(TEXTS[kind])
        assert state_of(run) is RunState.WAITING_HUMAN
    reject(MARKED[kind])
    world.run_until_idle()

    assert ApprovalDecision.objects.get().comment == MARKED[kind]
    assert state_of(run) is RunState.SUCCEEDED


@pytest.mark.parametrize("kind", TEXTS)
def test_reason_of_a_failure(world: World, kind: str):
    run = play(world, boxing(lambda run: fail(TEXTS[kind])))
    assert (run.state, run.error_text) == (RunState.FAILED, MARKED[kind])


NUMBERS = [0, -0.0, 0.1, 1e16, 5e-324, 2**53 + 1, 2**64, -(2**200), 10**400]
FLOATS = [1.5e300, 1.7976931348623157e308, 1e22, 0.1, -0.0]


def test_large_and_small_numbers_come_back_as_they_were(world: World):
    """P13: their digest is that of what was written, at each door; jsonb writes them in its own way."""
    seen: list[object] = []

    def body(run: Run[Box]) -> StepReturn:
        seen.extend([list(run.state.numbers), list(run.state.floats)])
        return wait_for("go", then=HEARD)

    run = api.start(boxing(body), {"numbers": NUMBERS, "floats": FLOATS})
    world.run_until_idle()
    api.signal(run.pk, "go", {"numbers": NUMBERS})
    world.run_until_idle()

    assert seen == [NUMBERS, FLOATS]
    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).result == {"numbers": NUMBERS}
    assert fresh(run).data["numbers"] == NUMBERS


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 10**5000], ids=["nan", "inf", "5000 digits"])
def test_what_is_no_number_in_json_is_refused_at_each_door(world: World, number: float):
    """10**5000 is one in JSON, and more than Python reads back."""
    with pytest.raises(InvalidState):
        api.start(boxing(lambda run: None), {"numbers": [number]})
    run = api.start(boxing(lambda run: succeed({"n": number})), {})
    with pytest.raises(InvalidState):
        api.signal(run.pk, "go", number)
    world.run_until_idle()

    assert_refused(fresh(run))
    assert not Signal.objects.exists()


LARGE = "x" * 300_000


def test_what_is_too_large_points_to_artifacts_at_each_door(world: World):
    """R31: and a receipt is a fact, so it is kept whole."""
    with pytest.raises(InvalidState, match="store it as an artifact"):
        api.start(boxing(lambda run: None), {"text": LARGE})
    too_large: list[Body] = [
        putting(LARGE),
        giving(LARGE),
        sending(LARGE),
        lambda run: succeed(LARGE),
        lambda run: each(ITEM, [LARGE] * 4, then=CLOSE),
        lambda run: child("boxing", {"text": LARGE}, then=HEARD),
    ]

    def first(run: Run[Box]) -> StepReturn:
        return too_large[0](run)

    flow = boxing(first)
    while too_large:
        run = api.start(flow, {})
        with pytest.raises(InvalidState, match="store it as an artifact"):
            api.signal(run.pk, "go", LARGE)
        world.run_until_idle()
        assert_refused(fresh(run), "artifact")
        too_large.pop(0)
    assert Outside.sent == []
    assert not SideEffect.objects.exists()


@pytest.mark.parametrize("text", [TEXTS["NUL"], TEXTS["surrogate"], LARGE], ids=["NUL", "surrogate", "large"])
def test_what_an_operator_puts_into_a_state_is_refused_as_a_caller_s_is(world: World, text: str):
    """R30, R31."""
    run = api.start(boxing(lambda run: None), {"text": "as it was"})
    api.pause(run.pk, reason="to look at it")

    with pytest.raises(InvalidState, match="store it as an artifact" if text == LARGE else "text"):
        api.edit(run.pk, reason="a correction", changes={"text": text})

    assert fresh(run).data["text"] == "as it was"


def test_a_large_receipt_is_a_fact_and_kept_whole(world: World, monkeypatch: pytest.MonkeyPatch):
    """R31: what a provider has answered cannot be refused any more."""
    monkeypatch.setattr(Outside, "answer", lambda: Slip(id=LARGE))
    run = play(world, boxing(lambda run: succeed(len(run.effect(send, text="x").id))))

    assert (run.state, run.result) == (RunState.SUCCEEDED, len(LARGE))
    assert SideEffect.objects.get().receipt == {"id": LARGE}
