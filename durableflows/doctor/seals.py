"""Are checkpoints, and what steps are given, what durableflows sealed? (P13) Shared by all who look; reads no row."""

from collections.abc import Iterable, Iterator
from uuid import UUID

from durableflows import integrity
from durableflows.doctor.findings import Found
from durableflows.integrity import Seal
from durableflows.models import StepRun, WorkflowRun

STATE_NEEDED = ("data", "manifest", "schema_version", "checkpoint_sequence", "data_digest", "data_key_id")
"""What is read of a run here."""
INPUT_NEEDED = ("run_id", "name", "visit", "item_key", "input", "input_seal", "state", "output")
"""What is read of a step here."""


def wrong_states(runs: Iterable[WorkflowRun]) -> Iterator[Found]:
    """Each run whose checkpoint is not proved by its seal."""
    for run in runs:
        yield from _wrong(integrity.state_seal(run), "state-digest", run.pk, "the state", run.data_key_id)


def wrong_inputs(steps: Iterable[StepRun]) -> Iterator[Found]:
    """Each step that is given something which its seal does not prove."""
    for step in steps:
        what, key_id = f"what {step} is given", integrity.input_key_id(step)
        yield from _wrong(integrity.input_seal(step), "step-input", step.run_id, what, key_id)


def _wrong(seal: Seal, code: str, run_id: UUID, what: str, key_id: str) -> Iterator[Found]:
    if seal is not Seal.HOLDS:
        yield "key-gone" if seal is Seal.KEY_GONE else code, run_id, integrity.why_not(seal, what, key_id)
