"""Sending a message to a run. Kept when nobody waits for it yet, used by one step, dropped when it comes again."""

from typing import Any
from uuid import UUID

from durableflows import arrivals, clock, integrity, journal, progress
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.core import shape
from durableflows.core.payload import JSON, check_size, check_text, same
from durableflows.core.ways import LONGEST_SIGNAL
from durableflows.errors import InvalidState, KeyConflict, NotAllowed, TooLate
from durableflows.models import Signal, WorkflowRun
from durableflows.models.compiled import insert
from durableflows.models.locks import lock_run
from durableflows.rights import as_stored
from durableflows.selectors import OPERATE, may_operate, run_for
from durableflows.transactions import database, transact

MOST_KEPT = 1000


def signal(run_id: UUID | str, name: str, payload: object, *, dedup_key: str, by: Any) -> Signal:
    """Store a signal for a run, and hand it to the step that waits for it.

    Raises           NotFoundError; NotAllowed for somebody who neither started the run nor may operate it; TooLate
                     when it has ended or is ending; InvalidState for a payload that cannot be stored; KeyConflict for
                     a known dedup key with another payload
    Writes / Locks   Signal, StepRun, WorkflowRun, RunEvent; locks run, then step
    Crash            before the commit nothing of it; after it the sweep sends the step
    """
    check_text(name, LONGEST_SIGNAL, "the signal's name")
    check_text(dedup_key, 200, "dedup_key")
    if not name:
        raise InvalidState("a signal needs a name, the one that wait_for(...) names")
    data = shape.plain_marked(payload, what=f"the payload of signal {name}")
    check_size(data, settings().MAX_STATE_BYTES, f"the payload of signal {name}")
    integrity.refuse_secrets(data, f"the payload of signal {name}")
    by = as_stored(by)
    run = run_for(run_id, by)
    if by is not None and run.owner_id != by.pk and not may_operate(run, by):
        raise NotAllowed(f"{by} may not signal this run: only who started it, or with the permission {OPERATE}")
    sent = _signal(run.pk, name, data, dedup_key, "" if by is None else str(by.get_username())[:150])
    cross(Boundary.SIGNAL_AFTER_COMMIT)
    return sent


@transact
def _signal(run_id: UUID, name: str, payload: JSON, dedup_key: str, sender_name: str) -> Signal:
    run = lock_run(run_id)
    known = _known(run, name, dedup_key)
    if known is not None:
        if not same(known.payload, payload):
            raise KeyConflict(f"the signal {name} with dedup key {dedup_key!r} came before with another payload")
        return known
    _check_takes(run, name)
    now = clock.now()
    sent = Signal(run=run, name=name, payload=payload, dedup_key=dedup_key, sender_name=sender_name, arrived_at=now)
    insert(sent, database())
    facts: dict[str, JSON] = {"signal": name, "key": dedup_key}
    step = arrivals.waiting_for_signal(run, name)
    journal.record(run, "signal.received", at=now, step=step, actor_name=sender_name, data=facts)
    if step is not None:
        arrivals.give_signal(run, step, sent, now)
    progress.conclude(run, now)
    cross(Boundary.SIGNAL_BEFORE_COMMIT)
    return sent


def _known(run: WorkflowRun, name: str, dedup_key: str) -> Signal | None:
    if not dedup_key:
        return None
    return Signal.objects.using(database()).filter(run=run, name=name, dedup_key=dedup_key).first()


def _check_takes(run: WorkflowRun, name: str) -> None:
    if run.ended_at is not None or (run.ending_reason and not run.is_cleaning_up):
        raise TooLate(f"the run is {run.word}: it takes no signals any more")
    if Signal.objects.using(database()).filter(run=run, name=name, used_by__isnull=True).count() >= MOST_KEPT:
        raise TooLate(f"{MOST_KEPT} signals {name} wait for this run already: it does not use them up")
