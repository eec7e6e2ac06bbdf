"""A line that user code writes into its run's history."""

from durableflows import clock, journal
from durableflows.leases import Lease
from durableflows.ledger import check_lease
from durableflows.models.locks import lock_run, lock_step
from durableflows.transactions import transact

TEXT_LIMIT = 2000


@transact
def note(lease: Lease, text: str) -> None:
    """Append a note. Locks run and step; a body that runs again writes it again. Raises LeaseLost (P2)."""
    run, step = lock_run(lease.run_id), lock_step(lease.step_id)
    check_lease(step, lease)
    journal.record(run, "run.note", at=clock.now(), step=step, data={"text": text[:TEXT_LIMIT]})
    run.store(*journal.FIELDS)
