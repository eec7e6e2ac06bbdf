"""Are checkpoints and histories what durableflows wrote? (P13)

Runs are taken in batches, each read at one moment.
"""

from uuid import UUID

from durableflows.doctor.chains import NEEDED, wrong_in_chains
from durableflows.doctor.findings import Finding, Found, gathered
from durableflows.doctor.rows import Scope, snapshot
from durableflows.doctor.seals import STATE_NEEDED, wrong_states
from durableflows.models import WorkflowRun

BATCH = 200


def examine_history(scope: Scope) -> list[Finding]:
    """All findings about seals and chains."""
    unproved: list[Found] = []
    broken: list[Found] = []
    last: UUID | None = None
    while True:
        with snapshot():
            runs = _batch(scope, last)
            unproved += wrong_states(runs)
            broken += wrong_in_chains(runs)
        if len(runs) < BATCH:
            return gathered([*unproved, *broken])
        last = runs[-1].pk


def _batch(scope: Scope, last: UUID | None) -> list[WorkflowRun]:
    rows = scope.runs().only(*NEEDED, *STATE_NEEDED)
    return list((rows if last is None else rows.filter(pk__gt=last))[:BATCH])
