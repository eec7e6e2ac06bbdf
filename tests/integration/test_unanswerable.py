"""A request that nobody can answer is loud at once, and quiet again when somebody can (R26)."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from durableflows import Escalate, api, signals
from durableflows.core.states import ApprovalState
from durableflows.doctor import Severity, examine
from durableflows.models import ApprovalRequest, RunEvent
from durableflows.services import unanswerable
from durableflows.testing import World, open_request
from tests.support.asking import APPROVE, DIRECT, USD_500, answer, asked, grant, person

pytestmark = pytest.mark.django_db(transaction=True)

SAYS = ("approval.unanswerable", "approval.answerable")


@pytest.fixture
def alerts() -> Iterator[list[str]]:
    heard: list[str] = []

    def hear(text: str, **_: Any) -> None:
        heard.append(text)

    signals.alert.connect(hear)
    yield heard
    signals.alert.disconnect(hear)


def said(request: ApprovalRequest) -> list[str]:
    rows = RunEvent.objects.filter(run=request.run_id, kind__in=SAYS).order_by("sequence")
    return [*rows.values_list("kind", flat=True)]


def unswept(world: World, *, by: Any = None) -> ApprovalRequest:
    """A request as the commit that asked has left it: no sweep has looked at it."""
    run = api.start("grant", {"amount": USD_500}, by=by)
    while world.messages:
        world.deliver(*world.messages.popleft())
    return open_request(run.pk)


def later(world: World) -> None:
    world.clock.advance(minutes=1)
    world.run_until_idle()


@pytest.mark.parametrize(
    "rules",
    [
        {"permission": APPROVE},
        {"groups": ("finance",)},
        {"people": ("ada",)},
        {"permission": APPROVE, "groups": ("finance",), "people": ("ada",)},
    ],
)
def test_it_is_loud_in_the_commit_in_which_it_is_asked(
    world: World, alerts: list[str], caplog: pytest.LogCaptureFixture, rules: dict[str, Any]
):
    """R26: an event, an error in the log, a signal, and a finding of the doctor; not only at the expiry."""
    grant(**rules)
    asker = person("asker", DIRECT)
    with caplog.at_level(logging.ERROR, "durableflows.approvals"):
        request = asked(world, by=asker)

    assert request.unanswerable_at == request.created_at
    assert said(request) == ["approval.unanswerable"]
    assert len(alerts) == 1
    assert alerts[0] in caplog.text
    found = [one for one in examine() if one.code == "unanswerable"]
    assert [(one.run_id, one.severity) for one in found] == [(request.run_id, Severity.ATTENTION)]
    assert "nobody could answer since" in found[0].text


def test_whoever_asked_is_nobody_where_they_may_not_decide(world: World):
    grant(permission=APPROVE)
    only = person("only", APPROVE)

    assert unswept(world, by=only).unanswerable_at is not None
    assert unswept(world).unanswerable_at is None


def test_one_of_two_is_too_few(world: World):
    grant(permission=APPROVE, quorum=2)
    person("mia", APPROVE)
    assert asked(world).unanswerable_at is not None
    person("max", APPROVE)
    assert asked(world).unanswerable_at is None


def test_a_group_that_becomes_empty_is_noticed_and_so_is_a_new_member(world: World, alerts: list[str]):
    """R26."""
    grant(groups=("finance",))
    fay = person("fay", groups=("finance",))
    request = asked(world)
    assert said(request) == []

    Group.objects.get(name="finance").user_set.clear()
    later(world)
    later(world)
    request.refresh_from_db()
    assert request.unanswerable_at is not None
    assert len(alerts) == 1
    fay.groups.add(Group.objects.get(name="finance"))
    later(world)

    assert not ApprovalRequest.objects.filter(unanswerable_at__isnull=False).exists()
    assert said(request) == [*SAYS]
    assert not [one for one in examine() if one.code == "unanswerable"]
    assert answer(request, fay).state == ApprovalState.APPROVED


def test_a_request_whose_rule_somebody_has_edited_is_one_that_nobody_can_answer_and_no_other_is_left_out(world: World):
    grant(people=("ada",))
    ada, edited, other = person("ada"), asked(world), asked(world)
    ApprovalRequest.objects.filter(pk=edited.pk).update(groups="what?")
    ada.delete()

    later(world)

    found = {one.run_id: one.text for one in examine() if one.code == "unanswerable"}
    assert set(found) == {edited.run_id, other.run_id}
    assert "is asked of nobody" in found[edited.run_id]


@pytest.mark.parametrize("change", ["deactivated", "deleted"])
def test_an_only_approver_who_goes_is_noticed(world: World, change: str):
    grant(people=("ada",))
    ada, request = person("ada"), asked(world)
    if change == "deleted":
        ada.delete()
    else:
        ada.is_active = False
        ada.save()

    later(world)

    assert said(request) == ["approval.unanswerable"]


def test_it_is_looked_at_when_it_is_handed_on(world: World, alerts: list[str]):
    grant(permission=APPROVE, on_expiry=Escalate(people=("boss",)))
    person("mia", APPROVE)
    request = asked(world)
    world.clock.move_to(request.expires_at)
    world.run_until_idle()

    request.refresh_from_db()
    assert request.unanswerable_at == world.clock.now()
    assert said(request) == ["approval.unanswerable"]
    assert "boss" in alerts[0]


def test_the_next_people_are_found_where_the_first_were_missing(world: World):
    grant(permission=APPROVE, on_expiry=Escalate(people=("boss",)))
    request = asked(world)
    person("boss")
    world.clock.move_to(request.expires_at)
    world.run_until_idle()

    request.refresh_from_db()
    assert request.unanswerable_at is None


@override_settings(DURABLEFLOWS={"TENANTS_OF": "tests.support.tenants.of"})
def test_somebody_of_another_tenant_is_nobody(world: World):
    grant(permission=APPROVE)
    person("acme-ann", APPROVE)
    request = asked(world)

    assert request.unanswerable_at is not None


@override_settings(DURABLEFLOWS={"TENANTS_OF": "tests.support.tenants.lost"})
def test_where_the_project_cannot_say_nobody_is_alarmed_and_people_are_asked(world: World):
    grant(permission=APPROVE)
    person("mia", APPROVE)

    assert asked(world).unanswerable_at is None


@override_settings(AUTHENTICATION_BACKENDS=["tests.support.asking.Closed", "django.contrib.auth.backends.ModelBackend"])
def test_a_back_end_that_lists_nobody_may_know_somebody(world: World):
    grant(permission=APPROVE)

    assert asked(world).unanswerable_at is None


def test_looking_costs_the_same_however_many_are_open(world: World):
    grant(groups=("finance",))
    people = [person(f"fay{number}", groups=("finance",)) for number in range(3)]

    def counted() -> int:
        unanswerable.forget()
        with CaptureQueriesContext(connection) as queries:
            unanswerable.look_at_all(world.clock.now())
        return len(queries)

    asked(world, by=people[0])
    few = counted()
    for number in range(9):
        asked(world, by=people[number % 3])

    assert counted() == few


def test_it_is_not_looked_at_with_every_sweep(world: World):
    grant(groups=("finance",))
    fay = person("fay", groups=("finance",))
    request = asked(world)
    later(world)
    fay.groups.clear()

    world.clock.advance(seconds=5)
    world.run_until_idle()
    assert said(request) == []
    world.clock.advance(seconds=30)
    world.run_until_idle()
    assert said(request) == ["approval.unanswerable"]


def test_a_request_that_was_answered_meanwhile_stays_as_it_is(world: World):
    grant(groups=("finance",))
    fay = person("fay", groups=("finance",))
    request = asked(world)
    answer(request, fay)
    request.refresh_from_db()

    assert not unanswerable._mark(request.pk, can_be_answered=False)

    request.refresh_from_db()
    assert request.unanswerable_at is None
    assert timedelta(0) <= world.clock.now() - request.created_at
