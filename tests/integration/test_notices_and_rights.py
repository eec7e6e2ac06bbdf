"""A notice leaves the house as a page does: who may know of a request is asked again when it is given."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import override_settings

from durableflows import api
from durableflows.models import Announcement, ApprovalRequest, Notification
from durableflows.notify import deliver
from durableflows.services import notices
from tests.support import told_people
from tests.support.offices import SETTINGS, Office, office, person
from tests.support.told_people import told

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def desk() -> Iterator[Office]:
    with office(remind=(timedelta(days=1),)) as made:
        yield made


def test_an_operator_who_is_none_any_more_is_not_told_that_nobody_can_answer(desk: Office):
    """A notice shows what is decided on: the right to know it is asked for again, too."""
    User.objects.filter(username__in=["bo", "cy"]).update(is_active=False)
    person("eve", "operate_run")
    desk.ask()
    for announcement in Announcement.objects.filter(kind="unanswerable"):
        notices.address(announcement.pk)
    desk.di.user_permissions.clear()

    desk.world.run_until_idle()

    assert told() == [("eve", "unanswerable")]
    assert Notification.objects.get(person=desk.di).error == "the person may not know of it any more"


def test_who_has_left_the_tenant_is_not_told_that_it_was_withdrawn(desk: Office):
    request = desk.asked()
    told_people.forget()
    api.withdraw(request.pk, by=desk.ada, reason="not needed")
    ApprovalRequest.objects.update(tenant="acme")
    User.objects.filter(username="bo").update(username="acme-bo")

    with override_settings(DURABLEFLOWS=SETTINGS | {"TENANTS_OF": "tests.support.tenants.of"}):
        desk.world.run_until_idle()

    assert told() == [("acme-bo", "withdrawn")]


def test_while_nobody_can_say_who_may_a_notice_waits_and_counts_as_not_given(desk: Office):
    """Not as one that may have been given: a reminder would be dropped."""
    desk.asked()
    told_people.forget()
    with override_settings(DURABLEFLOWS=SETTINGS | {"TENANTS_OF": "tests.support.tenants.lost"}):
        desk.world.clock.advance(days=1)
        notices.remind(desk.world.clock.now())
        with override_settings(DURABLEFLOWS=SETTINGS):
            notices.address(Announcement.objects.get(kind="reminder").pk)
        assert not any(deliver(row.pk) for row in Notification.objects.filter(kind="reminder"))
    desk.world.clock.advance(minutes=2)
    desk.world.run_until_idle()

    assert sorted(told()) == [("bo", "reminder"), ("cy", "reminder")]
