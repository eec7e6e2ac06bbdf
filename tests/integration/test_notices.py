"""Who is told what about a request: once, in time, and never in the way of a run."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.test import override_settings

from durableflows import NeverSent, Permanent, UnknownOutcome, api
from durableflows.core.notices import ALERT_AFTER_ATTEMPTS, GIVE_UP_AFTER
from durableflows.core.states import ApprovalState, RunState
from durableflows.doctor import examine
from durableflows.models import Announcement, ApprovalRequest, Notification, WorkflowRun
from durableflows.notifiers import Notice
from durableflows.notify import deliver
from durableflows.services import cleanup, notices
from durableflows.signals import alert
from durableflows.testing import Boundary, Crash, crash_at
from tests.support import told_people
from tests.support.offices import SETTINGS, Office, answer, office, person
from tests.support.play import state_of
from tests.support.told_people import FAULTS, KEEPER, SECOND, TOLD, raising, telling_then_raising, told

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)


@pytest.fixture
def desk() -> Iterator[Office]:
    with office(remind=(DAY, 2 * DAY)) as made:
        yield made


def test_those_who_may_answer_are_told_once_and_nobody_else(desk: Office):
    person("eve")

    desk.asked()
    desk.world.run_until_idle()

    assert told() == [("bo", "asked"), ("cy", "asked")]
    assert not Notification.objects.filter(sent_at=None).exists()


def test_a_notice_says_what_is_asked_by_whom_until_when_and_where(desk: Office):
    desk.asked()

    notice = TOLD[0]
    assert notice.subject == "To decide: Pay 5 to Ada"
    assert notice.lines[0] == "ada asks for your decision."
    assert "until Thu 8 Jan 09:00 (UTC)" in notice.lines[1]
    assert notice.facts == {"amount": "5", "to": "Ada"}
    assert notice.link.startswith("https://desk.example.com/durableflows/inbox/link/")


def test_who_asked_is_not_told_even_with_the_right(desk: Office):
    desk.asked(by=desk.bo)

    assert told() == [("cy", "asked")]


def test_superusers_are_told_only_when_nobody_else_could_answer(desk: Office):
    User.objects.create_superuser("root")
    desk.asked()
    assert told() == [("bo", "asked"), ("cy", "asked")]

    User.objects.filter(username__in=["bo", "cy"]).update(is_active=False)
    desk.asked("Eve")

    assert told()[2:] == [("root", "asked")]


def test_nothing_is_kept_where_nobody_is_notified(desk: Office):
    with override_settings(DURABLEFLOWS={}):
        desk.asked()

    assert not Announcement.objects.exists()


def test_each_notifier_tells_everybody_and_one_that_fails_repeats_nothing_of_the_other(desk: Office):
    FAULTS.append(raising(OSError("no route")))
    with override_settings(DURABLEFLOWS=SETTINGS | {"NOTIFIERS": [KEEPER, SECOND]}):
        desk.asked()
        desk.world.clock.advance(seconds=30)
        desk.world.run_until_idle()

    assert len(TOLD) == len(told_people.ALSO_TOLD) == 2


def test_a_failing_notifier_holds_up_no_run(desk: Office):
    """The request is asked, answered and done while nobody can be told."""
    FAULTS.extend([raising(OSError("no route"))] * 100)
    request = desk.asked()

    answer(request, desk.bo)
    desk.world.run_until_idle()

    assert state_of(request.run_id) is RunState.SUCCEEDED
    assert told() == []


def test_what_was_not_given_is_tried_again_with_longer_and_longer_pauses(desk: Office):
    User.objects.filter(username="cy").update(is_active=False)
    FAULTS.extend([raising(OSError("no route"))] * 3)
    desk.asked()
    pauses = []
    while not TOLD:
        row = Notification.objects.get()
        pauses.append((row.due_at - desk.world.clock.now()).total_seconds())
        desk.world.clock.move_to(row.due_at)
        desk.world.run_until_idle()

    assert pauses == [30, 60, 120]
    assert told() == [("bo", "asked")]
    assert Notification.objects.get().attempts == 4


def test_somebody_hears_of_a_notice_that_fails_again_and_again(desk: Office):
    User.objects.filter(username="cy").update(is_active=False)
    FAULTS.extend([raising(OSError("no route"))] * 100)
    heard: list[str] = []

    def hear(*, text: str, **_: Any) -> None:
        heard.append(text)

    alert.connect(hear)
    desk.asked()
    for _ in range(ALERT_AFTER_ATTEMPTS + 2):
        desk.world.clock.move_to(Notification.objects.get().due_at)
        desk.world.run_until_idle()
    alert.disconnect(hear)

    assert len(heard) == 1
    assert "bo could not be given" in heard[0]
    assert "notice-failing" in [found.code for found in examine()]


def test_a_notice_is_given_up_at_last(desk: Office):
    """Not one that asks: that ends with its request."""
    request = desk.asked()
    FAULTS.extend([raising(OSError("no route"))] * 100)
    api.withdraw(request.pk, by=desk.ada, reason="not needed")
    desk.world.run_until_idle()
    desk.world.clock.advance(seconds=GIVE_UP_AFTER.total_seconds())
    desk.world.run_until_idle()

    rows = Notification.objects.filter(kind="withdrawn")
    assert rows.count() == 2
    assert not rows.filter(dropped_at=None).exists()


def test_what_cannot_be_given_is_dropped_with_its_reason(desk: Office):
    FAULTS.append(raising(Permanent("this person has no mail address")))
    desk.asked()

    row = Notification.objects.get(person=desk.bo)
    assert (row.attempts, row.error) == (1, "this person has no mail address")
    assert row.dropped_at is not None


@pytest.mark.parametrize("boundary", [Boundary.NOTICE_TAKEN, Boundary.NOTICE_GIVEN])
def test_who_dies_with_a_notice_in_hand_leaves_it_to_be_given_again_under_the_same_id(desk: Office, boundary: Boundary):
    """At least once: a decision that nobody heard of costs days, a second mail a glance."""
    User.objects.filter(username="cy").update(is_active=False)
    desk.ask()
    with crash_at(boundary), pytest.raises(Crash):
        desk.world.run_until_idle()
    desk.world.lose_messages()
    before = len(TOLD)
    desk.world.run_until_idle()
    assert len(TOLD) == before, "nobody gives it while the dead one's time runs"

    desk.world.clock.advance(seconds=notices.TAKEN_SECONDS)
    desk.world.run_until_idle()

    assert before == (boundary is Boundary.NOTICE_GIVEN)
    assert [notice.id for notice in TOLD] == [str(Notification.objects.get().pk)] * (before + 1)


@pytest.mark.parametrize("boundary", [Boundary.NOTICE_TAKEN, Boundary.NOTICE_GIVEN])
def test_a_reminder_that_may_have_been_given_is_not_given_again(desk: Office, boundary: Boundary):
    User.objects.filter(username="cy").update(is_active=False)
    desk.asked()
    told_people.forget()
    desk.world.clock.advance(days=1)
    with crash_at(boundary), pytest.raises(Crash):
        desk.world.run_until_idle()
    desk.world.lose_messages()

    desk.world.clock.advance(seconds=notices.TAKEN_SECONDS)
    desk.world.run_until_idle()

    assert told() == ([("bo", "reminder")] if boundary is Boundary.NOTICE_GIVEN else [])
    assert Notification.objects.get(kind="reminder").error == notices.IN_DOUBT


def test_a_reminder_whose_answer_was_lost_is_not_given_again_and_one_that_never_left_is(desk: Office):
    desk.asked()
    told_people.forget()
    FAULTS.extend([telling_then_raising(UnknownOutcome("read timed out")), raising(NeverSent("refused"))])
    for seconds in (86_400, 60):
        desk.world.clock.advance(seconds=seconds)
        desk.world.run_until_idle()

    assert told() == [("bo", "reminder"), ("cy", "reminder")]


def test_people_are_reminded_at_each_moment_once(desk: Office):
    desk.asked()
    told_people.forget()
    for _ in range(3):
        desk.world.clock.advance(hours=23, minutes=59)
        desk.world.run_until_idle()
        desk.world.clock.advance(minutes=1)
        desk.world.run_until_idle()
        desk.world.run_until_idle()

    reminders = [one for one in told() if one[1] == "reminder"]
    assert reminders == [("bo", "reminder"), ("cy", "reminder")] * 2


def test_after_an_outage_people_are_reminded_once_of_all_that_was_missed(desk: Office):
    desk.asked()
    told_people.forget()

    desk.world.clock.advance(days=2, hours=3)
    desk.world.run_until_idle()

    assert told() == [("bo", "reminder"), ("cy", "reminder")]
    assert ApprovalRequest.objects.get().remind_at is None


def test_who_has_answered_is_not_reminded():
    with office(quorum=2, remind=(DAY,)) as desk:
        request = desk.asked()
        answer(request, desk.bo)
        told_people.forget()
        desk.world.clock.advance(days=1)
        desk.world.run_until_idle()

        assert told() == [("cy", "reminder")]


def test_nobody_is_told_of_what_is_answered_by_then(desk: Office):
    request = desk.ask()
    notices.address(Announcement.objects.get().pk)
    answer(request, desk.cy)

    desk.world.run_until_idle()

    assert told() == []
    assert {row.error for row in Notification.objects.all()} == {"the request is closed"}


def test_nobody_is_told_of_what_has_expired_though_no_sweep_has_been(desk: Office):
    """R10 (c)."""
    request = desk.ask()
    desk.world.clock.move_to(request.expires_at)

    assert notices.address(Announcement.objects.get().pk) == 0
    assert told() == []


def test_nobody_is_told_of_what_the_run_has_no_time_for(desk: Office):
    """R10 (c): the run's deadline has passed, and no sweep has been."""
    request = desk.ask()
    WorkflowRun.objects.filter(pk=request.run_id).update(deadline_at=desk.world.clock.now())

    assert notices.address(Announcement.objects.get().pk) == 0


def test_who_lost_the_right_meanwhile_is_not_told(desk: Office):
    desk.ask()
    notices.address(Announcement.objects.get().pk)
    desk.bo.user_permissions.clear()

    desk.world.run_until_idle()

    assert told() == [("cy", "asked")]


def test_who_is_deleted_meanwhile_stops_nothing(desk: Office):
    desk.ask()
    notices.address(Announcement.objects.get().pk)
    desk.bo.delete()

    desk.world.run_until_idle()

    assert told() == [("cy", "asked")]
    assert Notification.objects.get(person=None).person_name == "bo"


def test_those_to_whom_it_is_handed_on_are_told(desk: Office):
    request = desk.asked()
    told_people.forget()
    desk.world.clock.move_to(request.expires_at)

    desk.world.run_until_idle()

    assert told() == [("di", "escalated")]


def test_who_asked_is_told_when_nobody_answered(desk: Office):
    request = desk.asked()
    desk.world.clock.move_to(request.expires_at)
    desk.world.run_until_idle()
    request.refresh_from_db()
    told_people.forget()
    desk.world.clock.move_to(request.expires_at)

    desk.world.run_until_idle()

    request.refresh_from_db()
    assert request.state == ApprovalState.EXPIRED
    assert told() == [("ada", "expired")]
    assert TOLD[0].link == f"https://desk.example.com/durableflows/inbox/{request.pk}/asked/"


def test_who_answered_to_other_facts_is_told_that_they_changed():
    with office(quorum=2) as desk:
        request = desk.asked()
        answer(request, desk.bo)
        told_people.forget()
        api.pause(request.run_id, reason="the name was wrong")
        api.edit(request.run_id, reason="the name was wrong", changes={"to": "Eve"})
        desk.world.run_until_idle()

        assert told() == [("bo", "changed")]


def test_an_error_is_kept_without_the_link_that_it_quotes(desk: Office, caplog: pytest.LogCaptureFixture):
    """P14: tokens are in mails alone."""
    links = []

    def quote(notice: Notice) -> None:
        links.append(notice.link)
        raise OSError(f"550 cannot take {notice.link}")

    FAULTS.extend([quote] * 2 * ALERT_AFTER_ATTEMPTS)
    desk.asked()
    for _ in range(ALERT_AFTER_ATTEMPTS - 1):
        desk.world.clock.advance(hours=1)
        desk.world.run_until_idle()

    kept = [*Notification.objects.values_list("error", flat=True), caplog.text]
    assert len(links) == 2 * ALERT_AFTER_ATTEMPTS
    assert all("550 cannot take" in text for text in kept)
    assert not any(link.rstrip("/").rpartition("/")[2] in text for link in links for text in kept)


def test_two_runs_that_ask_at_once_are_told_of_each(desk: Office):
    first, second = desk.asked("Ada"), desk.asked("Eve")

    assert [UUID(notice.request_id) for notice in TOLD] == [first.pk, first.pk, second.pk, second.pk]


def test_a_message_that_is_lost_is_sent_again(desk: Office):
    desk.ask()
    notices.send_due(desk.world.clock.now())
    assert desk.world.lose_messages() == 1
    desk.world.run_until_idle()
    assert told() == []

    desk.world.clock.advance(seconds=15)
    desk.world.run_until_idle()

    assert told() == [("bo", "asked"), ("cy", "asked")]


def test_a_message_that_comes_twice_gives_a_notice_once(desk: Office):
    desk.asked()

    assert not any(deliver(row.pk) for row in Notification.objects.all())
    assert told() == [("bo", "asked"), ("cy", "asked")]


def test_old_runs_go_with_all_that_people_were_told(desk: Office):
    request = desk.asked()
    api.ask_requester(request.pk, "Which Ada?", by=desk.bo)
    api.reply(request.pk, "The first one.", by=desk.ada)
    answer(request, desk.bo)
    desk.world.run_until_idle()
    desk.world.clock.advance(days=3)

    assert cleanup.remove(request.run_id, desk.world.clock.now() - DAY) is not None
    assert not WorkflowRun.objects.exists()
    assert not Notification.objects.exists()
