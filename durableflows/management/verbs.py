"""The verbs of `manage.py durableflows`: one function each, options in, a `Report` out. They print nothing.

Rows change only through `api`, services and sweeps. Errors of the engine pass; the command turns them into messages.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping

from durableflows.management import (
    audits,
    cleanups,
    faulttests,
    monitors,
    operators,
    printed,
    proofs,
    providers,
    readers,
    upkeep,
    writers,
)
from durableflows.management.tables import Report

VERBS: Mapping[str, Callable[[Namespace], Report]] = {
    "list": readers.list_runs,
    "show": readers.show,
    "explain": readers.explain,
    **dict.fromkeys(operators.VERBS, operators.with_preview),
    "signal": writers.signal,
    "migrate": writers.migrate,
    "gate": proofs.look_through_gate,
    "resolve": writers.resolve,
    "provider": providers.provider,
    "sweep": upkeep.sweep,
    "ticker": upkeep.ticker,
    "rotate": upkeep.rotate,
    "cleanup": cleanups.run,
    "export-decisions": audits.export,
    "doctor": proofs.examine,
    "verify": proofs.verify,
    "health": monitors.show_health,
    "metrics": monitors.show_metrics,
    "faulttest": faulttests.play,
    "graph": printed.show_graph,
    "plan": printed.plan,
    "matrix": printed.show_matrix,
}
