"""Proves from the rows that the design's promises hold, and lists what is late or needs a person. Reads only.

Called by the command and by pages of health; never repairs, never runs user code, never takes a row lock.
"""

from datetime import datetime
from uuid import UUID

from durableflows import clock
from durableflows.doctor import due
from durableflows.doctor.budgets import examine_budgets
from durableflows.doctor.effects import examine_effects
from durableflows.doctor.findings import Finding, Severity
from durableflows.doctor.history import examine_history
from durableflows.doctor.jobs import examine_jobs
from durableflows.doctor.notices import examine_notices
from durableflows.doctor.providers import examine_providers
from durableflows.doctor.rows import Scope, snapshot
from durableflows.doctor.states import examine_states
from durableflows.doctor.verification import Progress, Proof, verify
from durableflows.doctor.waits import examine_waits, ticking_since

__all__ = ["Finding", "Progress", "Proof", "Severity", "examine", "overdue", "verify"]


def examine(run_id: UUID | None = None) -> tuple[Finding, ...]:
    """Examine one run, or all. What is broken comes first, then what is due, then what needs attention.

    A few queries for states, waits and the ledger; then every checkpoint and event is read once, in batches.
    """
    with snapshot():
        now = clock.now()
        scope = Scope(run_id, now, ticking_since(now))
        found = [*examine_states(scope), *examine_waits(scope), *examine_effects(scope), *examine_budgets(scope)]
        found += [*examine_providers(scope), *examine_notices(scope), *examine_jobs(scope)]
    found += examine_history(scope)
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def overdue(now: datetime) -> tuple[due.Late, ...]:
    """What should have gone on by itself, counted, for monitors that ask often: `examine` says which runs."""
    return tuple(due.overdue(Scope(None, now, None)))
