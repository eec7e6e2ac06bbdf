"""The outbox of notices: from what was announced to a row for each person, and what became of giving it.

A notice is given by `notify`, outside any transaction, between `take` and one of the three endings here. Who dies in
between leaves a row that was taken: when its time is over, it may have been given. Sweeps pick what
is due and send tasks; they work out nobody, for that runs code of the project (P11).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from durableflows import clock, dispatch, signals
from durableflows.announcements import announce
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.core import log_lines
from durableflows.core.notices import ALERT_AFTER_ATTEMPTS, WHILE_OPEN, Fate, NoticeKind, fate, pause_seconds
from durableflows.core.states import ApprovalState
from durableflows.models import Announcement, ApprovalRequest, Notification
from durableflows.models.compiled import write
from durableflows.models.locks import lock_request, try_lock_run
from durableflows.recipients import recipients
from durableflows.services.turns import each, while_open
from durableflows.transactions import database, transact

logger = log_lines.logger("durableflows.notices")

NOTIFY_SECONDS = 30.0
"""How long a notifier may take for one notice."""
TAKEN_SECONDS = NOTIFY_SECONDS + 30.0
LONGEST_ERROR = 500
IN_DOUBT = "it may have been given: whoever gave it was stopped before that was recorded"
OPEN = Q(sent_at__isnull=True, dropped_at__isnull=True)


def send_due(now: datetime) -> int:
    """Send the tasks that address what was announced, and give what is due; each row is taken by one ticker."""
    if not settings().NOTIFIERS:
        return 0
    announced = Announcement.objects.using(database()).filter(addressed_at__isnull=True, due_at__lte=now)
    notices = Notification.objects.using(database()).filter(OPEN, _is_free(now), due_at__lte=now)
    addressed = each(announced.order_by("due_at"), while_open(_send_announcement), line="announcements")
    return addressed + each(notices.order_by("due_at"), while_open(_send_notification), line="notices")


def _is_free(now: datetime) -> Q:
    return Q(taken_until__isnull=True) | Q(taken_until__lte=now)


def _send_announcement(pk: UUID) -> bool:
    return _send(Announcement.objects.using(database()).filter(addressed_at__isnull=True), pk, dispatch.ADDRESS_TASK)


def _send_notification(pk: UUID) -> bool:
    return _send(Notification.objects.using(database()).filter(OPEN), pk, dispatch.NOTIFY_TASK)


def _send(rows: "QuerySet[Any]", pk: UUID, task: str) -> bool:
    """Take the row for one publish, by moving the time at which it is due; a lost message makes it due again then."""
    now = clock.now()
    again = now + timedelta(seconds=settings().RESEND_SECONDS)
    is_mine = rows.filter(pk=pk, due_at__lte=now).update(due_at=again)
    return bool(is_mine) and not dispatch.publish(task, (str(pk),), None)


def address(announcement_id: UUID) -> int:
    """Work out whom an announcement is for, and make a notice for each of them and each notifier. Returns how many.

    Writes   Announcement, Notification
    Crash    before the commit it is worked out again; the same person gets no second one
    """
    rows = Announcement.objects.using(database()).filter(pk=announcement_id, addressed_at__isnull=True)
    announcement = rows.select_related("request__run", "request__requester", "request__assignee").first()
    if announcement is None:
        return 0
    now = clock.now()
    people = [] if is_moot(announcement.kind, announcement.request, now) else recipients(announcement, now)
    if not people:
        logger.info("nobody is told that request %s was %s", announcement.request_id, announcement.kind)
    made = [_notice(announcement, person, path, now) for person in people for path in settings().NOTIFIERS]
    return _keep(announcement, made, now)


@transact
def _keep(announcement: Announcement, made: list[Notification], now: datetime) -> int:
    Notification.objects.using(database()).bulk_create(made, ignore_conflicts=True)
    Announcement.objects.using(database()).filter(pk=announcement.pk).update(addressed_at=now)
    cross(Boundary.NOTICE_BEFORE_COMMIT)
    return len(made)


def _notice(announcement: Announcement, person: Any, notifier: str, now: datetime) -> Notification:
    return Notification(
        announcement=announcement,
        request=announcement.request,
        person=person,
        person_name=str(person.get_username())[:150],
        notifier=notifier[:200],
        kind=announcement.kind,
        rung=announcement.rung,
        made_at=now,
        due_at=now,
    )


def is_moot(kind: str, request: ApprovalRequest, now: datetime) -> bool:
    """Is it too late to tell somebody? What asks for something is told only while there is time for it (R10)."""
    if kind not in WHILE_OPEN:
        return False
    return request.state != ApprovalState.OPEN or now >= min(request.expires_at, request.run.deadline_at)


@dataclass(frozen=True, slots=True)
class Taken:
    """A notice that one process has to itself for TAKEN_SECONDS."""

    row: Notification
    attempt: int


def take(notification_id: UUID) -> Taken | None:
    """Take a notice that is to be given. None: it was given or dropped, or somebody else is at it.

    Whoever sends the message has looked whether it is due: a message that comes twice may bring the next try forward.

    Writes / Locks   Notification; locks it
    Crash            after the commit its time runs out, and then it may have been given
    """
    return _take(notification_id)


@transact
def _take(notification_id: UUID) -> Taken | None:
    row = _locked(notification_id)
    now = clock.now()
    if row is None or (row.taken_until is not None and row.taken_until > now):
        return None
    was_lost = row.taken_until is not None
    if was_lost and fate(row.kind, is_permanent=False, in_doubt=True, age=now - row.made_at) is Fate.DROPPED:
        _store(row, dropped_at=now, taken_until=None, error=IN_DOUBT)
        return None
    _store(row, taken_until=now + timedelta(seconds=TAKEN_SECONDS), attempts=row.attempts + 1)
    return Taken(row, row.attempts)


def _locked(notification_id: UUID) -> Notification | None:
    rows = Notification.objects.using(database()).select_for_update(no_key=True).filter(OPEN, pk=notification_id)
    return rows.first()


def _store(row: Notification, **values: Any) -> None:
    for name, value in values.items():
        setattr(row, name, value)
    write(row, database(), *values)


def sent(taken: Taken) -> None:
    """Record that a notice was given; true also when somebody else has taken it since."""
    now = clock.now()
    rows = Notification.objects.using(database()).filter(pk=taken.row.pk, sent_at__isnull=True)
    rows.update(sent_at=now, dropped_at=None, taken_until=None, error="")


def dropped(taken: Taken, why: str) -> None:
    """Give a notice up before it was given: nobody needs it any more, or it cannot be given."""
    _end(taken, why, is_permanent=True, in_doubt=False)


def failed(taken: Taken, why: str, *, is_permanent: bool, in_doubt: bool) -> None:
    """Try a notice again later, or give it up. Alerts when it has failed ALERT_AFTER_ATTEMPTS times, or is given up.

    in_doubt   it may have been given
    """
    ended = _end(taken, why, is_permanent=is_permanent, in_doubt=in_doubt)
    if ended or taken.attempt == ALERT_AFTER_ATTEMPTS:
        text = f"a notice ({taken.row.kind}) to {taken.row.person_name} could not be given: {why}"
        logger.error("request %s: %s", taken.row.request_id, text)
        signals.alert.send_robust(sender=Notification, run_id=taken.row.request.run_id, text=text)


@transact
def _end(taken: Taken, why: str, *, is_permanent: bool, in_doubt: bool) -> bool:
    row = _locked(taken.row.pk)
    if row is None or row.attempts != taken.attempt:
        return False
    now = clock.now()
    error = why[:LONGEST_ERROR]
    if fate(row.kind, is_permanent=is_permanent, in_doubt=in_doubt, age=now - row.made_at) is Fate.DROPPED:
        _store(row, dropped_at=now, taken_until=None, error=error)
        return True
    due_at = now + timedelta(seconds=pause_seconds(row.attempts))
    _store(row, due_at=due_at, taken_until=None, error=error)
    return False


def remind(now: datetime) -> int:
    """Have those reminded whose reminder is due; of several that are due, as after an outage, only once."""
    if not settings().NOTIFIERS:
        return 0
    rows = ApprovalRequest.objects.using(database()).filter(state=ApprovalState.OPEN, remind_at__lte=now)
    return each(rows.order_by("remind_at"), _remind, line="reminders")


@transact
def _remind(request_id: UUID) -> bool:
    run_id = ApprovalRequest.objects.using(database()).values_list("run_id", flat=True).get(pk=request_id)
    run = try_lock_run(run_id)
    if run is None:
        return False
    request, now = lock_request(request_id), clock.now()
    if request.state != ApprovalState.OPEN or request.remind_at is None or request.remind_at > now:
        return False
    moments = [datetime.fromisoformat(str(text)) for text in request.reminders]
    request.remind_at = next((moment for moment in moments if moment > now), None)
    request.store("remind_at")
    if now < min(request.expires_at, run.deadline_at):
        last = max((moment for moment in moments if moment <= now), default=now)
        announce(request, NoticeKind.REMINDER, now, number=int(last.timestamp() // 60))
    cross(Boundary.NOTICE_BEFORE_COMMIT)
    return True
