"""The seal on a run's checkpoint: a keyed digest that only this project can make (P13).

A state that does not match its digest was written by somebody else and is never resumed from.
"""

import hmac

from durableflows.conf import settings
from durableflows.core.payload import JSON, check_size, keyed_digest
from durableflows.errors import InvalidState
from durableflows.models import WorkflowRun


def seal(run: WorkflowRun, data: dict[str, JSON], sequence: int) -> None:
    """Put a checkpoint on the run, in memory. Raises InvalidState when it is too large."""
    check_size(data, settings().MAX_STATE_BYTES, f"the state of {run.workflow} run {run.pk}")
    key_id, key = next(iter(settings().state_keys().items()))
    run.data, run.checkpoint_sequence = data, sequence
    run.data_key_id, run.data_digest = key_id, keyed_digest(_sealed(run), key)


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


def _sealed(run: WorkflowRun) -> dict[str, JSON]:
    return {"run": str(run.pk), "sequence": run.checkpoint_sequence, "schema": run.schema_version, "data": run.data}
