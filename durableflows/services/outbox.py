"""READY rows are the outbox: they are sent when they are due, each by one ticker, and again when their message is lost.

Called by `sweeps`. Source: protocol, rule 11; R02, R04.
"""

from datetime import datetime
from functools import partial
from uuid import UUID

from django.db.models import Q

from durableflows import clock, dispatch, releases
from durableflows.claims import WAITS_FOR_WORKER
from durableflows.core.states import ParkedReason, StepState
from durableflows.models.step import GOES_ON
from durableflows.services import turns
from durableflows.services.turns import MOVING, all_steps, each, lock_going_on, while_open
from durableflows.transactions import transact


def send_ready(now: datetime) -> int:
    """Send READY steps that were never sent, or sent and not claimed; each is taken by one ticker for its publish."""
    due = all_steps().filter(state=StepState.READY, resend_at__lte=now, run__state__in=MOVING)
    due = due.filter(Q(wake_at__isnull=True) | Q(wake_at__lte=now))
    send = while_open(partial(_send_due, Q(resend_at__lte=now)))
    return each(due.order_by("resend_at"), send, line="unsent steps")


def send_unclaimed(now: datetime) -> int:
    """Send at once what was sent and not claimed, when the broker says that its queue is empty: it lost them (R02)."""
    lost = all_steps().filter(dispatch.unclaimed(now), GOES_ON, state=StepState.READY)
    lost = lost.exclude(retry_reason__startswith=WAITS_FOR_WORKER).order_by("sent_at")
    empty: dict[str | None, bool] = {}
    sent = 0
    for pk, workflow, version, name in lost.values_list("pk", "run__workflow", "run__version", "name")[: turns.BATCH]:
        queue = dispatch.queue_of(workflow, version, name)
        if queue not in empty:
            empty[queue] = dispatch.queued_messages(queue) == 0
        if empty[queue]:
            sent += while_open(partial(_send_due, dispatch.unclaimed(now)))(pk)
    return sent


def _send_due(still_due: Q, step_id: UUID) -> bool:
    try:
        return dispatch.send_due(step_id, still_due)
    except dispatch.Unsendable as error:
        return _park_unsendable(step_id, str(error))


@transact
def _park_unsendable(step_id: UUID, why: str) -> bool:
    """Leave a step that nobody can send to a person: `retry` sends it again, once what was wrong is mended."""
    locked = lock_going_on(step_id)
    if locked is None or locked[1].state != StepState.READY:
        return False
    releases.park(locked[0], ParkedReason.OUR_CODE, why, clock.now())
    return True
