"""What an unsettled effect needs next: table, order, and that no way leads to a second send that is not allowed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durableflows.core.reconcile import MAX_LOOKUPS, EffectFacts, Move, Next, may_resend, most_urgent, next_for
from durableflows.core.states import EffectState

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
S = EffectState
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)

LOST = EffectFacts(
    name="pay",
    state=S.UNKNOWN,
    key_window=None,
    settle_seconds=30,
    has_lookup=True,
    resend_when_absent=False,
    accepted_within=None,
    first_dispatched_at=NOW - 10 * SECOND,
    settles_at=NOW + 20 * SECOND,
    lookup_count=0,
    next_lookup_at=None,
    lookup_must_end_by=None,
    accepted_at=None,
    person_said_absent=False,
)
SETTLED_TIME = {"settles_at": NOW - SECOND, "first_dispatched_at": NOW - 31 * SECOND}
KEYED = {"key_window": 24 * HOUR}


def move(facts: EffectFacts, *, is_halted: bool = False, has_tries: bool = True, not_before: datetime = NOW) -> Move:
    return next_for(facts, NOW, is_halted=is_halted, has_tries=has_tries, not_before=not_before)


@pytest.mark.parametrize(
    ("first", "window", "settle", "wanted"),
    [
        (NOW, None, 30, False),
        (None, HOUR, 30, False),
        (NOW, HOUR, 30, True),
        (NOW - HOUR + 31 * SECOND, HOUR, 30, True),
        (NOW - HOUR + 30 * SECOND, HOUR, 30, False),
        (NOW - HOUR + 29 * SECOND, HOUR, 30, False),
        (NOW - HOUR, HOUR, 0, False),
        (NOW - 2 * HOUR, HOUR, 30, False),
    ],
)
def test_our_window_ends_a_settle_time_before_theirs(first, window, settle, wanted):
    """Protocol, rule 9."""
    assert may_resend(first, window, settle, NOW) is wanted


@pytest.mark.parametrize(
    ("changes", "flags", "wanted", "at"),
    [
        (KEYED, {}, Next.RESEND, NOW),
        (KEYED, {"not_before": NOW + 5 * SECOND}, Next.RESEND, NOW + 5 * SECOND),
        (KEYED, {"is_halted": True}, Next.WAIT, LOST.settles_at),
        (KEYED, {"has_tries": False}, Next.WAIT, LOST.settles_at),
        (KEYED | {"has_lookup": False}, {"is_halted": True}, Next.PERSON, NOW),
        (KEYED | {"has_lookup": False}, {"has_tries": False}, Next.PERSON, NOW),
        (KEYED, {"not_before": NOW + 24 * HOUR}, Next.WAIT, LOST.settles_at),
        ({}, {}, Next.WAIT, LOST.settles_at),
        (SETTLED_TIME, {}, Next.LOOK_UP, NOW),
        (SETTLED_TIME | {"settles_at": None}, {}, Next.LOOK_UP, NOW),
        (SETTLED_TIME | {"settles_at": NOW}, {}, Next.LOOK_UP, NOW),
        (SETTLED_TIME | {"next_lookup_at": NOW + 5 * SECOND}, {}, Next.LOOK_UP, NOW + 5 * SECOND),
        (SETTLED_TIME | {"lookup_must_end_by": NOW + 9 * SECOND}, {}, Next.WAIT, NOW + 9 * SECOND),
        (SETTLED_TIME | {"lookup_must_end_by": NOW}, {}, Next.LOOK_UP, NOW),
        (SETTLED_TIME | {"lookup_count": MAX_LOOKUPS - 1}, {}, Next.LOOK_UP, NOW),
        (SETTLED_TIME | {"lookup_count": MAX_LOOKUPS}, {}, Next.PERSON, NOW),
        (KEYED | {"said_already": True}, {}, Next.WAIT, LOST.settles_at),
        (KEYED | SETTLED_TIME | {"said_already": True}, {}, Next.LOOK_UP, NOW),
        (KEYED | {"said_already": True, "has_lookup": False}, {}, Next.PERSON, NOW),
        ({"has_lookup": False}, {}, Next.PERSON, NOW),
        ({"state": S.DISPATCHED, "has_lookup": False}, {}, Next.PERSON, NOW),
    ],
)
def test_an_effect_in_doubt(changes, flags, wanted, at):
    """P5; protocol, rules 3, 4, 9 and 10."""
    found = move(replace(LOST, **changes), **flags)

    assert (found.next, found.at) == (wanted, at)
    assert found.reason


@pytest.mark.parametrize(
    ("changes", "flags", "wanted"),
    [
        ({}, {}, Next.PERSON),
        ({"resend_when_absent": True}, {}, Next.RESEND),
        ({"resend_when_absent": True}, {"has_tries": False}, Next.PERSON),
        ({"resend_when_absent": True}, {"is_halted": True}, Next.SETTLED),
        ({"resend_when_absent": True, "said_already": True}, {}, Next.PERSON),
        ({"person_said_absent": True, "said_already": True}, {}, Next.RESEND),
        ({"person_said_absent": True}, {}, Next.RESEND),
        ({"person_said_absent": True}, {"has_tries": False}, Next.RESEND),
        ({"person_said_absent": True}, {"is_halted": True}, Next.SETTLED),
        ({}, {"is_halted": True}, Next.SETTLED),
    ],
)
def test_an_effect_that_is_absent(changes, flags, wanted):
    """P5 (b) and (c)."""
    assert move(replace(LOST, state=S.ABSENT, **changes), **flags).next is wanted


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, Next.LOOK_UP),
        ({"next_lookup_at": NOW + HOUR}, Next.LOOK_UP),
        ({"lookup_must_end_by": NOW + HOUR}, Next.WAIT),
        ({"has_lookup": False}, Next.PERSON),
        ({"accepted_within": HOUR, "accepted_at": NOW - HOUR}, Next.PERSON),
        ({"accepted_within": HOUR, "accepted_at": NOW - HOUR + SECOND}, Next.LOOK_UP),
        ({"accepted_within": None, "accepted_at": NOW - 1000 * HOUR}, Next.LOOK_UP),
        ({"lookup_count": MAX_LOOKUPS}, Next.LOOK_UP),
    ],
)
def test_an_effect_that_was_accepted(changes, wanted):
    """R17: pending is asked about for as long as it may be pending."""
    assert move(replace(LOST, state=S.ACCEPTED, key_window=24 * HOUR, **changes)).next is wanted


@pytest.mark.parametrize("state", [S.PLANNED, S.CONFIRMED, S.REJECTED, S.REVERSED, S.UNDONE])
def test_the_rest_is_settled(state):
    assert move(replace(LOST, state=state)).next is Next.SETTLED


def test_a_person_outranks_what_goes_by_itself_and_a_send_waits_for_all_others():
    def at(next_: Next, seconds: int = 0) -> Move:
        return Move(next_, NOW + seconds * SECOND, next_.value)

    order = [at(Next.PERSON), at(Next.LOOK_UP), at(Next.WAIT), at(Next.RESEND), at(Next.SETTLED)]

    for first in range(len(order)):
        assert most_urgent(reversed(order[first:])) == order[first]
    assert most_urgent([at(Next.WAIT, 9), at(Next.WAIT, 3)]) == at(Next.WAIT, 3)
    assert most_urgent([]) is None


SECONDS = st.integers(-200_000, 200_000).map(lambda seconds: NOW + timedelta(seconds=seconds))
FACTS = st.builds(
    EffectFacts,
    name=st.just("pay"),
    state=st.sampled_from(EffectState),
    key_window=st.none() | st.integers(60, 100_000).map(lambda seconds: timedelta(seconds=seconds)),
    settle_seconds=st.floats(15, 60),
    has_lookup=st.booleans(),
    resend_when_absent=st.booleans(),
    accepted_within=st.none() | st.just(HOUR),
    first_dispatched_at=st.none() | SECONDS,
    settles_at=st.none() | SECONDS,
    lookup_count=st.integers(0, 2 * MAX_LOOKUPS),
    next_lookup_at=st.none() | SECONDS,
    lookup_must_end_by=st.none() | SECONDS,
    accepted_at=st.none() | SECONDS,
    person_said_absent=st.booleans(),
    said_already=st.booleans(),
)


@given(FACTS, st.booleans(), st.booleans(), SECONDS)
def test_no_move_breaks_a_promise(facts: EffectFacts, is_halted: bool, has_tries: bool, not_before: datetime):
    """P5, P10; protocol, rules 3, 4, 9 and 10, over the whole space."""
    found = next_for(facts, NOW, is_halted=is_halted, has_tries=has_tries, not_before=not_before)

    if found.next is Next.RESEND:
        assert not is_halted
        if facts.state is S.ABSENT:
            assert facts.person_said_absent or (facts.resend_when_absent and not facts.said_already)
        else:
            assert facts.state in (S.UNKNOWN, S.DISPATCHED)
            assert has_tries
            assert not facts.said_already
            assert may_resend(facts.first_dispatched_at, facts.key_window, facts.settle_seconds, found.at)
            assert found.at >= not_before
    if found.next is Next.LOOK_UP:
        assert facts.has_lookup
        assert found.at >= NOW
        if facts.state is not S.ACCEPTED:
            assert facts.settles_at is None or facts.settles_at <= found.at
    if found.next is Next.WAIT:
        assert found.at > NOW, "a wait without an end"
    if facts.state in (S.UNKNOWN, S.DISPATCHED, S.ACCEPTED):
        assert found.next is not Next.SETTLED, "P15: open is not settled"
