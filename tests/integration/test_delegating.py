"""Lending the right to answer: between two moments, by whom it is, on record, and not any further."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.test import override_settings
from django.utils import timezone

from durableflows import InvalidState, NotAllowed, NotFoundError, api
from durableflows.core.states import ApprovalState
from durableflows.delegations import givers_of, takers_of
from durableflows.models import ApprovalDecision, Delegation
from durableflows.selectors import waiting_for
from tests.support.offices import ANSWER, SETTINGS, Office, answer, office, person
from tests.support.told_people import told

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def desk() -> Iterator[Office]:
    with office() as made:
        yield made


def lend(desk: Office, **options: Any) -> Delegation:
    """Bo lends to Eve for a week."""
    now = desk.world.clock.now()
    given = {"by": desk.bo, "until": now + timedelta(days=7), "reason": "on holiday", **options}
    return api.delegate(given.pop("taker", None) or User.objects.get(username="eve"), **given)


@pytest.fixture
def eve(desk: Office) -> User:
    return person("eve")


def test_it_holds_from_its_beginning_until_its_end(desk: Office, eve: User):
    now = desk.world.clock.now()
    lend(desk, starts=now + timedelta(days=1))

    holds = {}
    for hours in (0, 24, 7 * 24 - 1, 7 * 24):
        moment = now + timedelta(hours=hours)
        holds[hours] = (givers_of(eve, moment), takers_of(desk.bo, moment))

    assert holds == {0: ([], []), 24: ([desk.bo], [eve]), 167: ([desk.bo], [eve]), 168: ([], [])}


def test_what_was_lent_is_not_lent_on(desk: Office, eve: User):
    lend(desk)
    lend(desk, by=eve, taker=desk.di)

    assert givers_of(desk.di, desk.world.clock.now()) == [eve]


def test_days_are_whole_ones_where_the_clocks_change(desk: Office, eve: User):
    """In Berlin the last Sunday of March has 23 hours."""
    with timezone.override(ZoneInfo("Europe/Berlin")):
        row = lend(desk, starts=date(2026, 3, 29), until=date(2026, 3, 29))

    assert row.from_at == datetime(2026, 3, 28, 23, tzinfo=UTC)
    assert row.until_at == datetime(2026, 3, 29, 22, tzinfo=UTC)


def test_who_is_not_active_lends_and_takes_nothing(desk: Office, eve: User):
    lend(desk)
    now = desk.world.clock.now()
    User.objects.filter(pk=desk.bo.pk).update(is_active=False)

    assert givers_of(eve, now) == []


def test_a_deleted_giver_leaves_a_record_that_lends_nothing(desk: Office, eve: User):
    lend(desk)
    desk.bo.delete()

    assert givers_of(eve, desk.world.clock.now()) == []
    assert str(Delegation.objects.get()) == "eve for bo"


def test_the_same_again_changes_nothing(desk: Office, eve: User):
    now = desk.world.clock.now()
    rows = [lend(desk, starts=now, until=now + timedelta(days=1)) for _ in range(2)]

    assert rows[0].pk == rows[1].pk
    assert Delegation.objects.count() == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reason": " "}, "needs a reason"),
        ({"until": datetime(2026, 1, 1, tzinfo=UTC)}, "over before it begins"),
        ({"until": datetime(2030, 1, 1, tzinfo=UTC)}, "366 days at most"),
        ({"until": datetime(2026, 2, 1)}, "no time zone"),  # noqa: DTZ001
    ],
)
def test_what_is_no_delegation_is_refused(desk: Office, eve: User, options: dict[str, Any], words: str):
    with pytest.raises(InvalidState, match=words):
        lend(desk, **options)
    assert not Delegation.objects.exists()


def test_nobody_lends_to_oneself_or_to_nobody(desk: Office, eve: User):
    with pytest.raises(InvalidState, match="oneself"):
        lend(desk, taker=desk.bo)
    User.objects.filter(pk=eve.pk).update(is_active=False)
    with pytest.raises(InvalidState, match="two active users"):
        lend(desk)
    with pytest.raises(InvalidState, match="two active users"):
        lend(desk, by=None)


def test_somebody_else_s_right_needs_a_right_and_goes_to_a_third(desk: Office, eve: User):
    boss = person("boss", "add_delegation")
    with pytest.raises(NotAllowed, match="add_delegation"):
        lend(desk, by=desk.di, giver=desk.bo)
    with pytest.raises(NotAllowed, match="somebody else must say so"):
        lend(desk, by=boss, giver=desk.bo, taker=boss)

    assert lend(desk, by=boss, giver=desk.bo).made_by_name == "boss"
    assert lend(desk, by=None, giver=desk.cy).made_by_name == ""


def test_giver_and_taker_end_it_and_strangers_do_not_know_of_it(desk: Office, eve: User):
    row = lend(desk)
    for stranger in (desk.cy, desk.di):
        with pytest.raises(NotFoundError):
            api.end_delegation(row.pk, by=stranger, reason="x")
    with pytest.raises(NotFoundError):
        api.end_delegation("no id", by=desk.bo, reason="x")

    api.end_delegation(row.pk, by=eve, reason="I am ill")
    again = api.end_delegation(row.pk, by=desk.bo, reason="back early")

    assert (again.ended_by_name, again.ended_reason) == ("eve", "I am ill")
    assert givers_of(eve, desk.world.clock.now()) == []


def test_what_was_ended_may_be_lent_again(desk: Office, eve: User):
    now = desk.world.clock.now()
    times = {"starts": now, "until": now + timedelta(days=1)}
    api.end_delegation(lend(desk, **times).pk, by=desk.bo, reason="a mistake")

    lend(desk, **times)

    assert Delegation.objects.count() == 2
    assert givers_of(eve, now) == [desk.bo]


def test_whoever_takes_it_answers_by_the_giver_s_right_and_the_record_says_so(desk: Office, eve: User):
    request = desk.ask()
    with pytest.raises(NotFoundError):
        answer(request, eve)
    lend(desk)

    answer(request, again(eve))

    vote = ApprovalDecision.objects.get()
    assert (vote.actor_name, vote.for_name, vote.right) == ("eve", "bo", f"permission:durableflows.{ANSWER}")


def test_after_its_end_nobody_answers_by_it(desk: Office, eve: User):
    request = desk.ask()
    row = lend(desk)
    api.end_delegation(row.pk, by=desk.bo, reason="back early")

    with pytest.raises(NotFoundError):
        answer(request, again(eve))


def test_nobody_decides_by_it_what_the_giver_has_asked_for(desk: Office, eve: User):
    """R27, the roundabout way: not even with an own right, unless the approval allows that."""
    request = desk.ask(by=desk.bo)
    lend(desk)
    eve.user_permissions.set(desk.cy.user_permissions.all())

    with pytest.raises(NotAllowed, match="act for bo"):
        answer(request, again(eve))
    assert answer(request, desk.cy).state == ApprovalState.APPROVED


def test_whoever_acts_for_somebody_is_told_too(desk: Office, eve: User):
    lend(desk)

    desk.asked()

    assert told() == [("bo", "asked"), ("cy", "asked"), ("eve", "asked")]


def test_who_is_lent_a_right_finds_the_request_among_those_that_wait(desk: Office, eve: User):
    request = desk.ask()
    now = desk.world.clock.now()
    assert not waiting_for(again(eve), now=now).exists()
    lend(desk)

    assert [*waiting_for(again(eve), now=now)] == [request]


def again(person: User) -> User:
    """The account as another request reads it."""
    return User.objects.get(pk=person.pk)


@override_settings(DURABLEFLOWS=SETTINGS | {"TENANTS_OF": "tests.support.tenants.of"})
def test_a_right_about_others_delegations_holds_in_the_own_tenants(desk: Office):
    gil, tom = person("acme-gil"), person("acme-tom")
    stranger, boss = (person(name, "add_delegation", "change_delegation") for name in ("other-boss", "acme-boss"))

    with pytest.raises(NotAllowed, match="add_delegation"):
        lend(desk, by=stranger, giver=gil, taker=tom)
    made = lend(desk, by=boss, giver=gil, taker=tom)
    with pytest.raises(NotFoundError):
        api.end_delegation(made.pk, by=stranger, reason="so")

    assert api.end_delegation(made.pk, by=boss, reason="back early").ended_by_name == "acme-boss"
