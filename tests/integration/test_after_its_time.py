"""What becomes of a request when its time is over: who is asked then, which votes count, and where else it leads."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest

from durableflows import (
    Approvers,
    Escalate,
    Fallback,
    Money,
    NotFoundError,
    TooLate,
    Until,
)
from durableflows.core.states import ApprovalState
from durableflows.models import RunEvent
from durableflows.selectors import waiting_for
from durableflows.testing import World
from tests.support.asking import (
    APPROVE,
    DIRECT,
    PAID,
    USD_500,
    Lower,
    answer,
    asked,
    grant,
    person,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_after_its_time_others_are_asked_as_many_as_they_say(world: World):
    grant(permission=APPROVE, on_expiry=Escalate(groups=("board",), quorum=2, expires=timedelta(days=1)))
    mia, ben, bea = person("mia", APPROVE), *(person(name, groups=("board",)) for name in ("ben", "bea"))
    request = asked(world)
    world.clock.move_to(request.expires_at)
    world.run_until_idle()

    request.refresh_from_db()
    assert (request.asked_of, request.ladder_position) == (Approvers(groups=("board",), quorum=2), 1)
    assert request.expires_at == world.clock.now() + timedelta(days=1)
    assert RunEvent.objects.get(kind="approval.escalated").data["asked"] == "members of board"
    with pytest.raises(NotFoundError):
        answer(request, mia)
    answer(request, ben)
    answer(request, bea)
    world.run_until_idle()
    assert PAID == [USD_500]


def test_votes_are_kept_of_those_who_may_still_decide(world: World):
    """The others' are void; the quorum is the new one."""
    grant(permission=APPROVE, quorum=3, on_expiry=Escalate(DIRECT, quorum=2))
    mia, both, dan = person("mia", APPROVE), person("both", APPROVE, DIRECT), person("dan", DIRECT)
    request = asked(world)
    answer(request, mia)
    answer(request, both)
    world.clock.move_to(request.expires_at)
    world.run_until_idle()

    assert request.decisions.get(actor=mia).voided_reason == "who gave it is not among those asked now"
    assert request.decisions.get(actor=both).voided_at is None
    assert RunEvent.objects.get(kind="approval.escalated").data["voided"] == 1
    assert not waiting_for(both, now=world.clock.now()).exists()
    answer(request, dan)
    world.run_until_idle()
    assert PAID == [USD_500]


def test_votes_that_are_kept_may_be_enough(world: World):
    """P10: otherwise it would wait for somebody who is not needed."""
    grant(permission=APPROVE, quorum=2, on_expiry=Escalate(DIRECT, quorum=1))
    both, request = person("both", APPROVE, DIRECT), asked(world)
    answer(request, both)
    world.clock.move_to(request.expires_at)
    world.run_until_idle()

    request.refresh_from_db()
    assert (request.state, PAID) == (ApprovalState.APPROVED, [USD_500])
    assert request.closed_reason == "approve by both"


def test_votes_for_different_amounts_leave_it_to_the_next_people(world: World):
    """P9: nobody answers at that moment, so nobody has chosen between them."""
    grant(permission=APPROVE, quorum=2, edits=Lower, on_expiry=Escalate(DIRECT, quorum=1))
    less, more = person("less", APPROVE, DIRECT), person("more", APPROVE, DIRECT)
    request = asked(world)
    answer(request, less, edits={"amount": Money(40_000, "USD")})
    answer(request, more)
    world.clock.move_to(request.expires_at)
    world.run_until_idle()

    request.refresh_from_db()
    assert (request.state, request.ladder_position, PAID) == (ApprovalState.OPEN, 1, [])
    answer(request, person("dora", DIRECT), edits={"amount": Money(40_000, "USD")})
    world.run_until_idle()
    assert [Money(40_000, "USD")] == PAID


@pytest.mark.parametrize("on_expiry", [Fallback("later"), Escalate(DIRECT, then=Fallback("later"))])
def test_what_nobody_answers_goes_to_its_fallback(world: World, on_expiry: Any):
    grant(permission=APPROVE, on_expiry=on_expiry)
    request = asked(world)
    for _ in range(2):
        world.clock.move_to(request.expires_at)
        world.run_until_idle()
        request.refresh_from_db()

    assert request.state == ApprovalState.EXPIRED
    assert request.run.steps.filter(name="later", state="SUCCEEDED").exists()
    assert not request.run.steps.filter(name="refuse").exists()
    assert RunEvent.objects.get(kind="approval.closed").data["then"] == "later"


def test_time_is_over_when_the_clock_on_the_wall_says_so(world: World):
    """R10: over a change to summer time, at the same hour of the day."""
    world.clock.move_to(datetime(2026, 3, 27, 16, 30, tzinfo=UTC))  # a Friday, 17:30 in Berlin
    friday = Until(time(17), days=1, zone="Europe/Berlin", workdays_only=True)
    grant(permission=APPROVE, expires=friday, on_expiry=Escalate(DIRECT))
    mia, request = person("mia", APPROVE), asked(world)

    assert (request.expires_at, request.zone) == (datetime(2026, 3, 30, 15, 0, tzinfo=UTC), "Europe/Berlin")
    world.clock.move_to(request.expires_at)
    with pytest.raises(TooLate, match="expired"):
        answer(request, mia)
    world.run_until_idle()
    request.refresh_from_db()
    assert request.expires_at == datetime(2026, 3, 31, 15, 0, tzinfo=UTC)


def test_reminders_have_their_moments_with_whom_is_asked(world: World):
    spans = (timedelta(days=1), timedelta(hours=-4))
    grant(permission=APPROVE, expires=timedelta(days=3), remind=spans, on_expiry=Escalate(DIRECT))
    request = asked(world)
    begun = world.clock.now()

    moments = [begun + timedelta(days=1), begun + timedelta(days=2, hours=20)]
    assert request.reminders == [moment.isoformat() for moment in moments]
    assert request.remind_at == moments[0]
    world.clock.move_to(request.expires_at)
    world.run_until_idle()
    request.refresh_from_db()
    assert request.remind_at == begun + timedelta(days=4)
