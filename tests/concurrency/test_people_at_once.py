"""What people say at the same instant counts once, and one notice is given by one of the workers that have it."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from durableflows import TooLate, api, clock, dispatch
from durableflows.core.states import ApprovalState, RunState
from durableflows.models import (
    Announcement,
    ApprovalRequest,
    Delegation,
    Notification,
    RequestNote,
    RunEvent,
    WorkflowRun,
)
from durableflows.models.locks import lock_request, lock_run
from durableflows.notify import deliver
from durableflows.services import notices, sweeps
from durableflows.testing import Boundary
from tests.support import told_people
from tests.support.offices import Office, answer, office
from tests.support.rivals import Rival, at_once, gate_at
from tests.support.told_people import told

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

ROUNDS = 10
DAY = timedelta(days=1)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    monkeypatch.setattr(dispatch, "queued_messages", lambda queue: None)
    with office(remind=(DAY,)) as made:
        yield made


def kinds(request: ApprovalRequest) -> Counter[str]:
    return Counter(RunEvent.objects.filter(run=request.run_id).values_list("kind", flat=True))


def test_one_of_many_workers_gives_a_notice(desk: Office):
    for number in range(ROUNDS):
        desk.ask(f"Ada {number}")
        notices.address(Announcement.objects.get(addressed_at=None).pk)
        rows = list(Notification.objects.filter(sent_at=None))
        told_people.forget()

        given = at_once(*[partial(deliver, row.pk) for row in rows for _ in range(3)])

        assert Counter(given) == {True: 2, False: 4}
        assert sorted(told()) == [("bo", "asked"), ("cy", "asked")]


def test_a_worker_that_comes_while_another_gives_it_leaves_it_alone(desk: Office):
    desk.ask()
    notices.address(Announcement.objects.get().pk)
    row = Notification.objects.order_by("person").first()
    assert row is not None
    with gate_at(Boundary.NOTICE_TAKEN) as gate:
        first = Rival(partial(deliver, row.pk)).begin()
        gate.wait()
        assert not deliver(row.pk)
        gate.open()
        assert first.outcome() is True

    assert told() == [("bo", "asked")]


def test_many_tickers_address_and_remind_once(desk: Office):
    for _ in range(ROUNDS):
        request = desk.ask()
        desk.world.clock.advance(days=1)

        at_once(*[lambda: sweeps.sweep(may_free_stale=False)] * 3)
        desk.world.run_until_idle()

        rows = Announcement.objects.filter(request=request)
        assert sorted(rows.values_list("kind", flat=True)) == ["asked", "reminder"]
        answer(request, desk.bo)


def test_one_announcement_that_two_workers_address_makes_one_notice_for_each(desk: Office):
    for _ in range(ROUNDS):
        request = desk.ask()
        announcement = Announcement.objects.get(request=request)

        at_once(*[partial(notices.address, announcement.pk)] * 3)

        assert Notification.objects.filter(announcement=announcement).count() == 2


def test_a_withdrawal_and_an_answer_at_the_same_instant(desk: Office):
    """R22: one of them counts, the other is told."""
    for _ in range(ROUNDS):
        request = desk.asked()

        withdrawn, answered = at_once(
            partial(api.withdraw, request.pk, by=desk.ada, reason="not needed"), partial(answer, request, desk.bo)
        )
        desk.world.run_until_idle()

        request.refresh_from_db()
        run = WorkflowRun.objects.get(pk=request.run_id)
        assert isinstance(withdrawn, TooLate) != isinstance(answered, TooLate)
        wanted = ("SUCCEEDED", "APPROVED") if isinstance(withdrawn, TooLate) else ("CANCELLED", "CLOSED")
        assert (RunState(run.state), ApprovalState(request.state)) == wanted
        assert kinds(request)["approval.closed"] == 1


def same_twice(desk: Office, request: ApprovalRequest) -> dict[str, Any]:
    """What two clicks at the same instant do once: the verb, and the event that says so."""
    return {
        "approval.assigned": partial(api.reassign, request.pk, desk.cy, by=desk.bo, reason="x"),
        "approval.question": partial(api.ask_requester, request.pk, "Why?", by=desk.bo),
        "approval.reply": partial(api.reply, request.pk, "So.", by=desk.ada),
        "approval.withdrawn": partial(api.withdraw, request.pk, by=desk.ada, reason="x"),
    }


def test_a_double_click_on_two_connections_counts_once(desk: Office):
    for _ in range(ROUNDS):
        request = desk.asked()
        for event, verb in same_twice(desk, request).items():
            results = at_once(verb, verb, verb)

            assert not [result for result in results if isinstance(result, BaseException)], event
            assert kinds(request)[event] == 1
        numbers = RequestNote.objects.filter(request=request).values_list("number", flat=True)
        assert sorted(numbers) == [1, 2, 3, 4]


def test_a_question_that_waits_while_it_is_handed_on_is_not_asked(desk: Office):
    """The right to ask was one to answer; when the question comes to the lock, others are asked."""
    request = desk.asked()
    desk.world.clock.move_to(request.expires_at - timedelta(seconds=1))
    with transaction.atomic():
        lock_run(request.run_id)
        asking = Rival(partial(api.ask_requester, request.pk, "Why?", by=desk.bo)).begin()
        asking.wait_until_blocked()
        row = lock_request(request.pk)
        row.asked_at = desk.world.clock.now()
        row.store("asked_at")

    assert isinstance(asking.outcome(), TooLate)
    assert not RequestNote.objects.exists()


def test_two_people_who_hand_it_on_at_once_leave_one_assignee_and_both_notes(desk: Office):
    for _ in range(ROUNDS):
        request = desk.asked()

        at_once(
            partial(api.reassign, request.pk, desk.bo, by=desk.cy, reason="x"),
            partial(api.reassign, request.pk, desk.cy, by=desk.bo, reason="x"),
        )

        request.refresh_from_db()
        last = RequestNote.objects.filter(request=request).order_by("-number")[0]
        assert request.assignee_name == {"cy": "bo", "bo": "cy"}[last.author_name]


def test_the_same_delegation_twice_at_once_is_one(desk: Office):
    now = clock.now()
    for number in range(ROUNDS):
        until = now + timedelta(days=number + 1)
        lend = partial(api.delegate, desk.di, by=desk.bo, starts=now, until=until, reason="away")

        made = at_once(lend, lend, lend)

        assert len({row.pk for row in made if isinstance(row, Delegation)}) == 1
    assert Delegation.objects.count() == ROUNDS
