"""Answering by a right that somebody has lent: whose vote it is, for how long, and what is not lent."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import override_settings

from durableflows import NotAllowed, NotFoundError, api
from durableflows.core.approvers import Approvers
from durableflows.core.states import ApprovalState, RunState
from durableflows.models import ApprovalRequest, Delegation, RunEvent, WorkflowRun
from durableflows.rights import Standing
from durableflows.selectors import may_answer, requests_for, waiting_for
from durableflows.services import unanswerable
from durableflows.testing import World
from tests.support.asking import APPROVE, PAID, USD_500, again, answer, asked, grant, person

pytestmark = pytest.mark.django_db(transaction=True)


def lend(world: World, giver: User, taker: User, *, starts: int = 0, days: int = 5) -> Delegation:
    """Let `taker` act for `giver` from so many days on."""
    begins = world.clock.now() + timedelta(days=starts)
    return Delegation.objects.create(
        giver=giver,
        giver_name=giver.username,
        taker=taker,
        taker_name=taker.username,
        from_at=begins,
        until_at=begins + timedelta(days=days),
        reason="away",
        made_at=world.clock.now(),
    )


def is_refused(request: Any, by: User) -> bool:
    with pytest.raises((NotAllowed, NotFoundError)):
        answer(request, by)
    return not request.decisions.exists()


@pytest.mark.parametrize(
    ("rules", "giver", "right"),
    [
        ({"permission": APPROVE}, {"permissions": (APPROVE,)}, f"permission:{APPROVE}"),
        ({"groups": ("finance",)}, {"groups": ("finance",)}, "group:finance"),
        ({"people": ("gil",)}, {}, "person:gil"),
    ],
)
def test_whoever_acts_for_somebody_answers_by_that_right(
    world: World, rules: dict[str, Any], giver: dict[str, Any], right: str
):
    grant(**rules)
    gil, tom = person("gil", *giver.get("permissions", ()), groups=giver.get("groups", ())), person("tom")
    request = asked(world)
    assert is_refused(request, tom)
    lend(world, gil, tom)
    assert list(waiting_for(tom, now=world.clock.now())) == [request] == list(requests_for(tom))

    answer(request, tom)
    world.run_until_idle()

    vote = request.decisions.get()
    assert (vote.actor, vote.right, vote.for_person, vote.for_name) == (tom, right, gil, "gil")
    said = RunEvent.objects.get(kind="approval.answered")
    assert (said.actor_name, said.data["for"], said.data["right"]) == ("tom", "gil", right)
    assert PAID == [USD_500]


@pytest.mark.parametrize(("starts", "days", "may"), [(1, 5, False), (0, 5, True), (-5, 4, False), (-5, 6, True)])
def test_a_right_is_lent_between_two_moments(world: World, starts: int, days: int, may: bool):
    grant(permission=APPROVE)
    gil, tom = person("gil", APPROVE), person("tom")
    lend(world, gil, tom, starts=starts, days=days)

    assert may_answer(asked(world), tom) is may
    assert waiting_for(tom, now=world.clock.now()).exists() is may


def test_giver_and_taker_are_one_vote(world: World):
    """R22: a quorum counts rights, not clicks."""
    grant(permission=APPROVE, quorum=2)
    gil, tom, tea, mia = person("gil", APPROVE), person("tom"), person("tea"), person("mia", APPROVE)
    lend(world, gil, tom)
    lend(world, gil, tea)
    request = asked(world)
    answer(request, tom)

    with pytest.raises(NotAllowed, match="answered for gil already"):
        answer(request, tea)
    assert not waiting_for(gil, now=world.clock.now()).exists()
    assert not waiting_for(tea, now=world.clock.now()).exists()
    answer(request, gil)

    request.refresh_from_db()
    assert request.state == ApprovalState.OPEN
    assert request.decisions.get(actor=tom).voided_reason == "gil answered in person"
    with pytest.raises(NotAllowed, match="answered for gil already"):
        answer(request, tom)
    answer(request, mia)
    world.run_until_idle()
    assert PAID == [USD_500]


def test_an_own_right_is_used_before_a_lent_one(world: World):
    """So that giver and taker are two where both have the right."""
    grant(permission=APPROVE, quorum=2)
    gil, tom = person("gil", APPROVE), person("tom", APPROVE)
    lend(world, gil, tom)
    request = asked(world)

    answer(request, tom)
    answer(request, gil)
    world.run_until_idle()

    assert not request.decisions.exclude(for_name="").exists()
    assert PAID == [USD_500]


def test_for_two_givers_one_person_is_one_vote(world: World):
    grant(permission=APPROVE, quorum=2)
    gil, gus, tom = person("gil", APPROVE), person("gus", APPROVE), person("tom")
    lend(world, gil, tom)
    lend(world, gus, tom)
    request = asked(world)

    answer(request, tom)
    answer(request, tom)

    request.refresh_from_db()
    assert (request.state, request.decisions.count()) == (ApprovalState.OPEN, 1)


def test_the_second_lent_right_is_used_where_the_first_is_spent(world: World):
    grant(permission=APPROVE, quorum=2)
    gil, gus, tom = person("gil", APPROVE), person("gus", APPROVE), person("tom")
    lend(world, gil, tom)
    lend(world, gus, tom)
    request = asked(world)
    answer(request, gil)

    answer(request, tom)

    assert request.decisions.get(actor=tom).for_name == "gus"


def test_what_somebody_asked_for_is_not_lent(world: World):
    """R27: neither by the right of who asked, nor by an own one while acting for that person."""
    grant(permission=APPROVE)
    asker, tom, mia = person("asker", APPROVE), person("tom"), person("mia", APPROVE)
    lend(world, asker, tom)
    lend(world, asker, mia)
    request = asked(world, by=asker)

    assert is_refused(request, tom)
    with pytest.raises(NotAllowed, match="you act for asker, who asked for this"):
        answer(request, mia)
    for somebody in (tom, mia):
        assert not waiting_for(somebody, now=world.clock.now()).exists()
    other = asked(world)
    assert may_answer(other, tom)
    assert list(waiting_for(tom, now=world.clock.now())) == [other]


def test_a_delegate_may_decide_by_an_own_right_where_that_is_declared(world: World):
    grant(permission=APPROVE, exclude_delegate=False)
    asker, tom, mia = person("asker", APPROVE), person("tom"), person("mia", APPROVE)
    lend(world, asker, tom)
    lend(world, asker, mia)
    request = asked(world, by=asker)

    assert is_refused(request, tom)
    assert not may_answer(request, again(tom))
    assert list(waiting_for(mia, now=world.clock.now())) == [request]
    assert answer(request, mia).state == ApprovalState.APPROVED


def test_what_was_lent_is_not_lent_on(world: World):
    grant(permission=APPROVE)
    gil, tom, tea = person("gil", APPROVE), person("tom"), person("tea")
    lend(world, gil, tom)
    lend(world, tom, tea)

    assert is_refused(asked(world), tea)


@pytest.mark.parametrize("change", ["right", "inactive", "deleted"])
def test_the_giver_s_right_must_hold_when_the_run_wakes(world: World, change: str):
    """R26."""
    grant(permission=APPROVE)
    gil, tom = person("gil", APPROVE), person("tom")
    lend(world, gil, tom)
    request = asked(world)
    answer(request, tom)
    if change == "right":
        gil.user_permissions.clear()
    elif change == "inactive":
        User.objects.filter(pk=gil.pk).update(is_active=False)
    else:
        gil.delete()

    world.run_until_idle()

    stopped = WorkflowRun.objects.get(pk=request.run_id)
    assert stopped.state == RunState.PARKED
    assert "tom, who approved for gil, has" in stopped.parked_detail
    assert PAID == []


def test_that_it_was_lent_until_a_day_does_not_undo_what_was_answered_before(world: World):
    grant(permission=APPROVE)
    gil, tom = person("gil", APPROVE), person("tom")
    lend(world, gil, tom, days=1)
    request = asked(world)
    answer(request, tom)
    world.clock.advance(days=2)

    world.run_until_idle()

    assert PAID == [USD_500]


@override_settings(DURABLEFLOWS={"TENANTS_OF": "tests.support.tenants.of"})
@pytest.mark.parametrize(("giver", "taker"), [("acme-gil", "other-tom"), ("other-gil", "acme-tom")])
def test_both_act_in_the_tenant(world: World, giver: str, taker: str):

    grant(permission=APPROVE)
    lend(world, person(giver, APPROVE), person(taker))
    run = api.start("grant", {"amount": USD_500}, tenant="acme")
    world.run_until_idle()
    request = run.requests.get()

    assert is_refused(request, User.objects.get(username=taker))
    assert not may_answer(request, User.objects.get(username=taker))
    assert not waiting_for(User.objects.get(username=taker), now=world.clock.now()).exists()


@override_settings(DURABLEFLOWS={"TENANTS_OF": "tests.support.tenants.of"})
def test_a_right_is_one_in_the_own_tenants_alone():
    gil, by = person("acme-gil", APPROVE), Approvers(permission=APPROVE)

    assert Standing(gil).own_right(by, "acme") == f"permission:{APPROVE}"
    assert Standing(gil).own_right(by, "other") == ""


def test_who_acts_for_who_asked_could_not_answer_either(world: World):
    """R26, R27: noticed when it is asked, and when it is lent later."""
    grant(permission=APPROVE)
    asker, only = person("asker"), person("only", APPROVE)
    before = asked(world, by=asker)
    lend(world, asker, only)
    after = asked(world, by=asker)
    assert before.unanswerable_at is None
    assert after.unanswerable_at is not None

    unanswerable.forget()
    world.run_until_idle()

    looked_at = ApprovalRequest.objects.get(pk=before.pk)
    assert looked_at.unanswerable_at is not None
    assert not may_answer(looked_at, again(only))
