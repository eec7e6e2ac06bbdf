"""A line that user code writes into its run's history."""

from uuid import UUID

from durableflows import clock, journal
from durableflows.models.locks import lock_run, lock_step
from durableflows.transactions import transact

TEXT_LIMIT = 2000


@transact
def note(run_id: UUID, step_id: UUID, text: str) -> None:
    """Append a note. Locks run and step; a body that runs again writes it again."""
    run, step = lock_run(run_id), lock_step(step_id)
    journal.record(run, "run.note", at=clock.now(), step=step, data={"text": text[:TEXT_LIMIT]})
    run.store(*journal.FIELDS)
