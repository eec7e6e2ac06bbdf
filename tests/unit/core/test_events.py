"""What an event of a provider makes of an effect: event by state of the effect, whole, and what holds everywhere."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durableflows import EventReading
from durableflows.core.effects import EventOutcome
from durableflows.core.events import Event, EventVerdict, Judgement, Standing, is_overtaken, is_same_act, judge
from durableflows.core.payload import JSON
from durableflows.core.states import EFFECT_MOVES, EffectState
from durableflows.errors import InvalidDefinition

S, V = EffectState, EventVerdict
O = EventOutcome  # noqa: E741 - one letter for each column of the tables
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ASKED: dict[str, JSON] = {"amount": {"amount_minor": 500, "currency": "USD"}, "charge_id": "ch_1"}
SECOND = timedelta(seconds=1)


def event(outcome: EventOutcome, **given_: Any) -> Event:
    receipt: JSON = None if outcome is O.FAILED else {"id": "re_1", "status": str(outcome)}
    return replace(Event(outcome, "re_1", receipt, ASKED, "", NOON), **given_)


def standing(state: EffectState, **given_: Any) -> Standing:
    has_receipt = state not in (S.PLANNED, S.DISPATCHED, S.UNKNOWN, S.ABSENT, S.REJECTED)
    usual = Standing(
        state=state,
        receipt={"id": "re_1", "status": "pending"} if has_receipt else None,
        arguments=ASKED,
        settled_at=None,
        was_accepted=state is S.ACCEPTED,
        one_act=True,
        run_ended=False,
    )
    return replace(usual, **given_)


# verdict, move, is it loud (the row keeps a contradiction), is a person told
TABLE: dict[tuple[EventOutcome, EffectState], tuple[EventVerdict, str | None, bool, bool]] = {
    (O.PENDING, S.PLANNED): (V.CONTRADICTION, None, True, True),
    (O.PENDING, S.DISPATCHED): (V.SETTLED, "accept", False, False),
    (O.PENDING, S.UNKNOWN): (V.SETTLED, "accept", False, False),
    (O.PENDING, S.ACCEPTED): (V.KNOWN, None, False, False),
    (O.PENDING, S.CONFIRMED): (V.OLDER, None, False, False),
    (O.PENDING, S.REJECTED): (V.CONTRADICTION, None, True, True),
    (O.PENDING, S.ABSENT): (V.CONTRADICTION, None, True, True),
    (O.PENDING, S.UNDOING): (V.OLDER, None, False, False),
    (O.PENDING, S.UNDONE): (V.OLDER, None, False, False),
    (O.PENDING, S.UNDO_FAILED): (V.OLDER, None, False, False),
    (O.PENDING, S.REVERSED): (V.OLDER, None, False, False),
    (O.HAPPENED, S.PLANNED): (V.SETTLED, "confirm", True, True),
    (O.HAPPENED, S.DISPATCHED): (V.SETTLED, "confirm", False, False),
    (O.HAPPENED, S.UNKNOWN): (V.SETTLED, "confirm", False, False),
    (O.HAPPENED, S.ACCEPTED): (V.SETTLED, "confirm", False, False),
    (O.HAPPENED, S.CONFIRMED): (V.KNOWN, None, False, False),
    (O.HAPPENED, S.REJECTED): (V.SETTLED, "confirm", True, True),
    (O.HAPPENED, S.ABSENT): (V.SETTLED, "confirm", True, True),
    (O.HAPPENED, S.UNDOING): (V.OLDER, None, False, False),
    (O.HAPPENED, S.UNDONE): (V.OLDER, None, False, False),
    (O.HAPPENED, S.UNDO_FAILED): (V.OLDER, None, False, False),
    (O.HAPPENED, S.REVERSED): (V.CONTRADICTION, None, True, True),
    (O.FAILED, S.PLANNED): (V.CONTRADICTION, None, True, True),
    (O.FAILED, S.DISPATCHED): (V.SETTLED, "reject", False, True),
    (O.FAILED, S.UNKNOWN): (V.SETTLED, "reject", False, True),
    (O.FAILED, S.ACCEPTED): (V.SETTLED, "reject", False, True),
    (O.FAILED, S.CONFIRMED): (V.REVERSED, "reverse", True, True),
    (O.FAILED, S.REJECTED): (V.KNOWN, None, False, False),
    (O.FAILED, S.ABSENT): (V.CONTRADICTION, None, True, True),
    (O.FAILED, S.UNDOING): (V.KNOWN, None, False, False),
    (O.FAILED, S.UNDONE): (V.KNOWN, None, False, False),
    (O.FAILED, S.UNDO_FAILED): (V.KNOWN, None, False, False),
    (O.FAILED, S.REVERSED): (V.KNOWN, None, False, False),
}


def seen(judged: Judgement) -> tuple[EventVerdict, str | None, bool, bool]:
    change = judged.change
    return judged.verdict, change.verb, bool(change.alert), bool(change.alert or change.notice)


@pytest.mark.parametrize(("outcome", "state"), sorted(TABLE))
def test_an_event_about_an_effect(outcome: EventOutcome, state: EffectState):
    """R17, R20; protocol, rules 7 and 8."""
    assert seen(judge(event(outcome), standing(state))) == TABLE[outcome, state]


def test_the_table_is_whole():
    """Every event meets every state."""
    assert set(TABLE) == {(outcome, state) for outcome in EventOutcome for state in EffectState}


@pytest.mark.parametrize("outcome", list(EventOutcome))
@pytest.mark.parametrize("state", list(EffectState))
@pytest.mark.parametrize(
    "wrong",
    [
        {"amount": {"amount_minor": 501, "currency": "USD"}},
        {"amount": {"amount_minor": 500, "currency": "EUR"}},
        {"charge_id": "ch_2"},
        {"customer": "nobody asked"},
    ],
    ids=["amount", "currency", "charge", "unasked"],
)
def test_what_does_not_fit_the_request_settles_nothing_and_is_loud(
    outcome: EventOutcome, state: EffectState, wrong: dict[str, object]
):
    """P5: a contradiction is never ignored and never believed."""
    judged = judge(event(outcome, facts={**ASKED, **wrong}), standing(state))

    assert (judged.verdict, judged.change.verb) == (V.CONTRADICTION, None)
    assert next(iter(wrong)) in judged.change.alert


@pytest.mark.parametrize("outcome", list(EventOutcome))
@pytest.mark.parametrize("state", [S.ACCEPTED, S.CONFIRMED, S.REVERSED])
def test_another_act_under_our_key_is_a_contradiction(outcome: EventOutcome, state: EffectState):
    """P3: two acts for one key are what must never be."""
    judged = judge(event(outcome, reference="re_2"), standing(state))

    assert (judged.verdict, judged.change.verb) == (V.CONTRADICTION, None)
    assert "re_2" in judged.change.alert
    assert "re_1" in judged.change.alert


def test_a_failure_does_not_speak_for_another_send_that_may_have_acted():
    """Protocol, rule 7."""
    for state in (S.DISPATCHED, S.UNKNOWN):
        judged = judge(event(O.FAILED), standing(state, one_act=False))
        assert (judged.verdict, judged.change.verb) == (V.CONTRADICTION, None)


def test_of_two_ends_the_later_one_counts_and_an_end_is_later_than_pending():
    """R20: an older event never puts back what is known."""
    failed_later = ((O.FAILED, NOON + SECOND),)
    assert judge(event(O.HAPPENED), standing(S.REVERSED, before=failed_later)).verdict is V.OLDER
    assert judge(event(O.HAPPENED), standing(S.REJECTED, before=failed_later)).verdict is V.OLDER
    assert judge(event(O.PENDING, at=NOON + SECOND), standing(S.CONFIRMED, before=((O.HAPPENED, NOON),))).verdict is (
        V.OLDER
    )
    assert judge(event(O.FAILED), standing(S.CONFIRMED, before=((O.HAPPENED, NOON + SECOND),))).verdict is V.OLDER
    assert judge(event(O.FAILED), standing(S.CONFIRMED, before=((O.HAPPENED, NOON - SECOND),))).verdict is V.REVERSED


def test_of_two_ends_in_one_second_the_failure_is_the_later_one():
    """Providers tell time in seconds, and what was done can fail, not the other way round."""
    assert judge(event(O.FAILED), standing(S.CONFIRMED, before=((O.HAPPENED, NOON),))).verdict is V.REVERSED
    assert judge(event(O.HAPPENED), standing(S.REVERSED, before=((O.FAILED, NOON),))).verdict is V.OLDER
    assert judge(event(O.HAPPENED, at=None), standing(S.REVERSED, before=((O.FAILED, NOON),))).verdict is V.OLDER


def test_a_success_from_before_a_failure_that_a_lookup_found_is_old_news():
    """R20; what was refused at once and happens all the same is another thing."""
    failed = standing(S.REJECTED, was_accepted=True, settled_at=NOON + SECOND)
    assert judge(event(O.HAPPENED), failed).verdict is V.OLDER
    assert judge(event(O.HAPPENED, at=None), failed).verdict is V.OLDER
    assert judge(event(O.HAPPENED, at=NOON + 2 * SECOND), failed).change.verb == "confirm"
    assert judge(event(O.PENDING), failed).verdict is V.OLDER


def test_news_after_the_end_of_the_run_settles_and_is_told():
    """R17: not dropped because the run is finished."""
    judged = judge(event(O.HAPPENED), standing(S.UNKNOWN, run_ended=True))
    assert (judged.verdict, judged.change.verb, bool(judged.change.alert)) == (V.SETTLED, "confirm", True)


ENDS = st.tuples(st.sampled_from(EventOutcome), st.none() | st.integers(0, 3).map(lambda n: NOON + n * SECOND))


@given(
    st.sampled_from(EventOutcome), st.sampled_from(EffectState), st.booleans(), st.booleans(), st.booleans(),
    st.lists(ENDS, max_size=3), st.none() | st.integers(0, 3).map(lambda n: NOON + n * SECOND),
)  # fmt: skip
def test_whatever_is_told_the_move_is_legal_and_surprises_are_loud(outcome, state, one, ended, accepted, before, at):
    """Protocol, rules 7 and 8, over the whole space."""
    effect = standing(state, one_act=one, run_ended=ended, was_accepted=accepted, before=tuple(before))
    judged = judge(event(outcome, at=at), effect)

    if judged.change.verb is not None:
        assert state in EFFECT_MOVES[judged.change.verb][0]
        assert judged.verdict in (V.SETTLED, V.REVERSED)
    assert not judged.change.closes, "an event says nothing about requests that are under way"
    assert (judged.verdict is V.CONTRADICTION) is (bool(judged.change.alert) and judged.change.verb is None)


@given(st.permutations([O.PENDING, O.HAPPENED, O.FAILED]), st.sampled_from([S.DISPATCHED, S.UNKNOWN, S.ACCEPTED]))
def test_in_whatever_order_they_come_it_ends_as_not_done(order, state):
    """R20: pending, done, failed a second later each: the money is not with the customer, in each order."""
    at = {O.PENDING: NOON, O.HAPPENED: NOON + SECOND, O.FAILED: NOON + 2 * SECOND}
    told: tuple[tuple[EventOutcome, datetime | None], ...] = ()
    accepted = state is S.ACCEPTED
    for outcome in order:
        effect = standing(state, was_accepted=accepted, before=told, receipt={"id": "re_1"})
        judged = judge(event(outcome, at=at[outcome]), effect)
        assert judged.verdict is not V.CONTRADICTION
        state = EFFECT_MOVES[judged.change.verb][1] if judged.change.verb else state
        accepted |= state is S.ACCEPTED
        told = (*told, (outcome, at[outcome])) if judged.verdict is not V.OLDER else told

    assert state in (S.REJECTED, S.REVERSED)


def test_receipts_are_of_one_act_when_the_provider_gives_them_one_name():
    """Their status may have moved on between them."""
    assert is_same_act({"id": "re_1", "status": "pending"}, {"id": "re_1", "status": "succeeded"})
    assert is_same_act({"sum": 5}, {"sum": 5})
    assert not is_same_act({"id": "re_1"}, {"id": "re_2"})
    assert not is_same_act({"sum": 5}, {"sum": 6})
    assert not is_same_act({"id": "", "sum": 5}, {"id": "", "sum": 6})


def test_an_answer_is_overtaken_by_the_end_of_the_very_act_alone():
    """A refusal without a receipt is no act: a receipt that comes after it is a surprise."""
    assert is_overtaken(S.REJECTED, {"id": "re_1"}, {"id": "re_1", "status": "pending"})
    assert is_overtaken(S.REVERSED, {"id": "re_1"}, {"id": "re_1"})
    assert not is_overtaken(S.REJECTED, None, None)
    assert not is_overtaken(S.REJECTED, {"id": "re_1"}, {"id": "re_2"})
    assert not is_overtaken(S.ACCEPTED, {"id": "re_1"}, {"id": "re_1"})


@pytest.mark.parametrize(
    ("given_", "what"),
    [
        ({"outcome": "happened", "key": "k", "receipt": 1}, "EventOutcome"),
        ({"outcome": O.FAILED}, "key or a reference"),
        ({"outcome": O.HAPPENED, "key": "k"}, "receipt"),
        ({"outcome": O.FAILED, "key": "k", "at": NOON.replace(tzinfo=None)}, "time zone"),
    ],
)
def test_a_reading_that_says_too_little_is_refused(given_: dict[str, Any], what: str):
    with pytest.raises(InvalidDefinition, match=what):
        EventReading(**given_)
