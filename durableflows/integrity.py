"""The seals on a run's checkpoint and on what a step is given: keyed digests that only this project can make (P13).

What does not match its seal was written by somebody else and is never resumed from; neither is an older checkpoint
that somebody has put back with its valid seal: the history says that the run was further.
"""

import hmac

from durableflows import journal
from durableflows.conf import settings
from durableflows.core.payload import JSON, check_size, keyed_digest
from durableflows.core.secrecy import find_secret
from durableflows.errors import InvalidState
from durableflows.models import StepRun, WorkflowRun


def seal(run: WorkflowRun, data: dict[str, JSON], sequence: int) -> None:
    """Put a checkpoint on the run, in memory. Raises InvalidState when it is too large."""
    check_size(data, settings().MAX_STATE_BYTES, f"the state of {run.workflow} run {run.pk}")
    refuse_secrets(data, f"the state of {run.workflow}")
    key_id, key = next(iter(settings().state_keys().items()))
    run.data, run.checkpoint_sequence = data, sequence
    run.data_key_id, run.data_digest = key_id, keyed_digest(_sealed(run), key)


def refuse_secrets(data: JSON, what: str) -> None:
    """Refuse what would be stored and is a secret by its form (P14).

    Raises InvalidState, which names the place and not the value
    """
    where = find_secret(data) if settings().REFUSE_SECRETS else ""
    if where:
        raise InvalidState(
            f"{what}: {where} looks like a key or token, and would be stored. Keep SecretRef(name=...) there, and let "
            "the step look the secret up by run.secret(...)"
        )


def is_sealed(run: WorkflowRun) -> bool:
    """Was the checkpoint written by this project, for this run, at this sequence?"""
    key = settings().state_keys().get(run.data_key_id)
    if key is None:
        return False
    try:
        digest = keyed_digest(_sealed(run), key)
    except (InvalidState, RecursionError):  # infinity, a lone surrogate, too deep: we never wrote that
        return False
    return hmac.compare_digest(run.data_digest.encode("utf-8", "replace"), digest.encode())


def is_current(run: WorkflowRun) -> bool:
    """Is this the run's last checkpoint? Its history is one row a fact, so it knows when an older one was put back."""
    end = journal.tail(run)
    here = (run.event_sequence, run.event_digest, run.checkpoint_sequence)
    return here == (end.sequence, end.digest, end.checkpoint)


def seal_input(step: StepRun) -> None:
    """Put the seal on what the step is given, in memory; an empty input has none."""
    key_id, key = next(iter(settings().state_keys().items()))
    step.input_seal = f"{key_id}:{keyed_digest(_given(step), key)}" if step.input else ""


def is_input_sealed(step: StepRun) -> bool:
    """Was what the step is given written by this project, for this step?"""
    if not step.input:
        return not step.input_seal
    key_id, _, digest = step.input_seal.rpartition(":")
    key = settings().state_keys().get(key_id)
    if key is None:
        return False
    try:
        expected = keyed_digest(_given(step), key)
    except (InvalidState, RecursionError):
        return False
    return hmac.compare_digest(digest.encode("utf-8", "replace"), expected.encode())


def _given(step: StepRun) -> dict[str, JSON]:
    return {"run": str(step.run_id), "step": str(step.pk), "input": step.input}


def _sealed(run: WorkflowRun) -> dict[str, JSON]:
    return {"run": str(run.pk), "sequence": run.checkpoint_sequence, "schema": run.schema_version, "data": run.data}
