"""The seals on a run's checkpoint and on what a step is given: keyed digests that only this project can make (P13).

What does not match its seal was written by somebody else and is never resumed from; neither is an older checkpoint
that somebody has put back with its valid seal: the history says that the run was further.
"""

import hmac
from enum import StrEnum

from durableflows import journal
from durableflows.conf import settings
from durableflows.core.payload import JSON, check_size, keyed_digest
from durableflows.core.secrecy import find_named_secret, find_secret
from durableflows.errors import ChangedOutside, InvalidState
from durableflows.models import StepRun, WorkflowRun


class Seal(StrEnum):
    """What a seal proves. KEY_GONE: nothing, as long as its key is not in STATE_KEYS."""

    HOLDS = "holds"
    KEY_GONE = "key gone"
    BROKEN = "broken"


def sealing_key() -> tuple[str, bytes]:
    """Id and bytes of the key that seals what is written now."""
    return next(iter(settings().state_keys().items()))


def seal(run: WorkflowRun, data: dict[str, JSON], sequence: int) -> None:
    """Put a checkpoint on the run, in memory. Raises InvalidState when it is too large, or holds a secret."""
    check_fits(run, data)
    run.data, run.checkpoint_sequence = data, sequence
    seal_as_it_is(run)


def check_fits(run: WorkflowRun, data: dict[str, JSON]) -> None:
    """Raise InvalidState for a checkpoint that is too large, or holds a secret."""
    check_size(data, settings().MAX_STATE_BYTES, f"the state of {run.workflow} run {run.pk}")
    refuse_secrets(data, f"the state of {run.workflow}", named=True)


def seal_as_it_is(run: WorkflowRun) -> None:
    """Put the seal on the checkpoint that the run has, in memory; the caller has seen that the old seal holds."""
    run.data_key_id, key = sealing_key()
    run.data_digest = keyed_digest(_sealed(run), key)


def refuse_secrets(data: JSON, what: str, *, named: bool = False) -> None:
    """Refuse what would be stored and is a secret by its form, or by the name of its field (P14).

    named    names count: those of a state are the project's own, while arguments and answers have names of others
    Raises   InvalidState, which names the place and not the value
    """
    where = (find_secret(data) or (find_named_secret(data) if named else "")) if settings().REFUSE_SECRETS else ""
    if where:
        raise InvalidState(
            f"{what}: {where} looks like a key or token, and would be stored. Keep SecretRef(name=...) there, and let "
            "the step look the secret up by run.secret(...)"
        )


def state_seal(run: WorkflowRun) -> Seal:
    """Was the checkpoint written by this project, for this run, at this sequence?"""
    return _proved(run.data_key_id, run.data_digest, _sealed(run))


def is_sealed(run: WorkflowRun) -> bool:
    """Does the seal on the checkpoint hold?"""
    return state_seal(run) is Seal.HOLDS


def is_current(run: WorkflowRun) -> bool:
    """Is this the run's last checkpoint? Its history is one row a fact, so it knows when an older one was put back."""
    end = journal.tail(run)
    here = (run.event_sequence, run.event_digest, run.checkpoint_sequence)
    return here == (end.sequence, end.digest, end.checkpoint)


def has_moved(run: WorkflowRun) -> bool:
    """Was the run written since it was read without its lock? What its history says then is not about this row."""
    rows = WorkflowRun.objects.using(settings().DATABASE).filter(pk=run.pk)
    return not rows.filter(event_sequence=run.event_sequence).exists()


def seal_input(step: StepRun) -> None:
    """Put the seal on what the step is given, in memory; on nothing too, or else all could be taken out unseen."""
    key_id, key = sealing_key()
    step.input_seal = f"{key_id}:{keyed_digest(_given(step), key)}"


def give(step: StepRun, given: dict[str, JSON]) -> None:
    """Let a step be given something else, in memory, sealed. What it keeps of what it had must have been ours.

    Else the old seal stays, which does not hold for this: no worker begins with it
    """
    is_ours = not _keeps_something(step, given) or is_input_sealed(step)
    step.input = given
    if is_ours:
        seal_input(step)


def _keeps_something(step: StepRun, given: dict[str, JSON]) -> bool:
    """Does it keep a part of what it had? Of an item's branch, or of nothing, that may have been taken out."""
    if step.gather_id is not None or not step.input or not isinstance(step.input, dict):
        return True
    return bool(step.input.keys() & given.keys())


def input_seal(step: StepRun) -> Seal:
    """Was what the step is given written by this project, for this step?"""
    return _proved(input_key_id(step), step.input_seal.rpartition(":")[2], _given(step))


def input_key_id(step: StepRun) -> str:
    """Under which key what the step is given is sealed; '' for a seal that was taken off."""
    return step.input_seal.rpartition(":")[0]


def is_input_sealed(step: StepRun) -> bool:
    """Does the seal on what the step is given hold?"""
    return input_seal(step) is Seal.HOLDS


def check_input(step: StepRun) -> None:
    """Raise ChangedOutside unless what the step was given is ours: a part of it is about to be kept and sealed anew."""
    seal = input_seal(step)
    if seal is not Seal.HOLDS:
        raise ChangedOutside(why_not(seal, f"what {step.name} is given", input_key_id(step)))


def why_not(seal: Seal, what: str, key_id: str) -> str:
    """Say why a seal does not hold."""
    if seal is Seal.KEY_GONE:
        return f"{what} is sealed under key {key_id!r}, which STATE_KEYS no longer has"
    return f"{what} does not match its digest: it was changed from outside"


def _proved(key_id: str, digest: str, what: dict[str, JSON]) -> Seal:
    key = settings().state_keys().get(key_id)
    if key is None:
        return Seal.KEY_GONE if key_id else Seal.BROKEN
    try:
        expected = keyed_digest(what, key)
    except (InvalidState, RecursionError):  # infinity, a lone surrogate, too deep: we never wrote that
        return Seal.BROKEN
    is_ours = hmac.compare_digest(digest.encode("utf-8", "replace"), expected.encode())
    return Seal.HOLDS if is_ours else Seal.BROKEN


def _given(step: StepRun) -> dict[str, JSON]:
    return {"run": str(step.run_id), "step": str(step.pk), "input": step.input}


def _sealed(run: WorkflowRun) -> dict[str, JSON]:
    place: dict[str, JSON] = {"run": str(run.pk), "sequence": run.checkpoint_sequence, "schema": run.schema_version}
    return {**place, "manifest": run.manifest, "data": run.data}
