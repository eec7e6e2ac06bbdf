"""Sealing anew what an older key has sealed, under the first key of STATE_KEYS. One run, one transaction.

What is not proved by its old seal is never sealed anew: that would make it ours. Two at once do no harm, and whoever
was interrupted begins again: only what is left is taken. Source: P13; design, section 2.
"""

from collections import Counter
from collections.abc import Mapping
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Left, Length
from django.db.models.lookups import Exact

from durableflows import clock, integrity, journal
from durableflows.boundaries import Boundary, cross
from durableflows.core.payload import JSON
from durableflows.errors import ChangedOutside
from durableflows.integrity import Seal
from durableflows.models import StepRun, WorkflowRun
from durableflows.models.locks import lock_all_steps, lock_run
from durableflows.transactions import database, transact

SIGNATURE = len(":") + 64
"""How much of a step's seal stands behind the key's id."""
KEY_OF_INPUT = Left("input_seal", Length("input_seal") - SIGNATURE)


def due() -> QuerySet[WorkflowRun]:
    """The runs of which something is sealed under another key than the first."""
    first, _ = integrity.sealing_key()
    given = _given().filter(run=OuterRef("pk")).exclude(Exact(KEY_OF_INPUT, Value(first)))
    runs = WorkflowRun.objects.using(database()).filter(~Q(data_key_id=first) | Exists(given))
    return runs.order_by("pk")


def keys_in_use() -> Mapping[str, int]:
    """Key id -> how many checkpoints and inputs it seals."""
    runs = WorkflowRun.objects.using(database()).order_by()
    counts = Counter(dict(runs.values_list("data_key_id").annotate(Count("pk"))))
    counts.update(dict(_given().order_by().values_list(KEY_OF_INPUT).annotate(Count("pk"))))
    return counts


def _given() -> QuerySet[StepRun]:
    return StepRun.objects.using(database()).exclude(input_seal="")


def rotate(run_id: UUID) -> bool:
    """Seal a run's checkpoint, and what its steps were given, under the first key. False: nothing of it was due.

    Raises           NotFoundError; ChangedOutside when something of it is not proved by its old seal: then nothing of
                     the run is sealed anew
    Writes / Locks   WorkflowRun, StepRun, RunEvent; locks run, then all its steps
    Crash            before the commit nothing of it; after it the run is done with
    """
    is_done = _rotate(run_id)
    cross(Boundary.OPERATE_AFTER_COMMIT)
    return is_done


@transact
def _rotate(run_id: UUID) -> bool:
    run, now = lock_run(run_id), clock.now()
    first, _ = integrity.sealing_key()
    steps = [step for step in lock_all_steps(run) if step.input_seal and integrity.input_key_id(step) != first]
    if run.data_key_id == first and not steps:
        return False
    _check(run, steps)
    before: list[JSON] = [*sorted({run.data_key_id, *map(integrity.input_key_id, steps)} - {first})]
    integrity.seal_as_it_is(run)
    for step in steps:
        integrity.seal_input(step)
        step.store("input_seal")
    journal.record(run, "run.resealed", at=now, data={"from": before, "to": first, "inputs": len(steps)})
    run.store("data_digest", "data_key_id", *journal.FIELDS)
    cross(Boundary.OPERATE_BEFORE_COMMIT)
    return True


def _check(run: WorkflowRun, steps: list[StepRun]) -> None:
    state = integrity.state_seal(run)
    if state is not Seal.HOLDS:
        raise ChangedOutside(f"{integrity.why_not(state, 'the state', run.data_key_id)}; it is not sealed anew")
    if not integrity.is_current(run):
        raise ChangedOutside("the run was put back to an older checkpoint; it is not sealed anew")
    for step in steps:
        given = integrity.input_seal(step)
        if given is not Seal.HOLDS:
            why = integrity.why_not(given, f"what {step} is given", integrity.input_key_id(step))
            raise ChangedOutside(f"{why}; nothing of the run is sealed anew")
