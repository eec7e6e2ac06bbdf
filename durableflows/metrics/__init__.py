"""What a monitor reads: the engine's figures, computed from the rows when they are asked for. Reads only.

Nothing is counted in processes: a worker that dies takes no figure with it, and a web process can answer for all.
Source: specification S2.27 to S2.34.
"""

from durableflows import clock
from durableflows.doctor.rows import snapshot
from durableflows.metrics.lately import lately
from durableflows.metrics.standing import standing
from durableflows.metrics.values import Sample

__all__ = ["collect"]


def collect() -> tuple[Sample, ...]:
    """All figures, of one moment. A score of queries, each bounded by what is under way or happened lately."""
    with snapshot():
        now = clock.now()
        return (*standing(now), *lately(now))
