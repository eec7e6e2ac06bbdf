"""What is measured: each metric with its name, labels and meaning, as `docs/reference/metrics.md` prints them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

WINDOW = timedelta(minutes=5)
"""What "lately" means: metrics that end in `_lately` are of these last minutes, and fall when nothing happens."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One metric: a gauge, computed from the rows when it is asked for."""

    name: str
    labels: tuple[str, ...]
    says: str
    source: str = ""

    def sample(self, value: float, *labels: str) -> "Sample":
        """One value of it."""
        assert len(labels) == len(self.labels), f"{self.name} has the labels {self.labels}"
        return Sample(self, labels, float(value))


@dataclass(frozen=True, slots=True)
class Sample:
    """One value with its labels' values, in the order of the kind's labels."""

    kind: Kind
    labels: tuple[str, ...]
    value: float


def age(now: datetime, since: datetime | None) -> float:
    """Seconds since a moment; 0 when there is none, or when another machine's clock is ahead."""
    return max(0.0, (now - since).total_seconds()) if since is not None else 0.0


RUNS = Kind("durableflows_runs", ("workflow", "state"), "runs that have not ended")
OLDEST_RUN = Kind("durableflows_oldest_run_seconds", ("workflow", "state"), "age of the oldest of them", "S2.27")
PARKED = Kind(
    "durableflows_runs_parked",
    ("workflow", "reason"),
    "runs that stand until somebody lets them go on. `integrity`: a checkpoint that was changed by hand; `incompatible "
    "release`: one that does not fit the code; `error in our code`: one that could not be stored, or a body failed",
    "S2.28",
)
STEPS = Kind("durableflows_steps", ("workflow", "state"), "steps that are open")
PEOPLE = Kind("durableflows_steps_need_person", ("workflow",), "open steps that a person must say something about")
QUEUED = Kind("durableflows_steps_queued", ("workflow",), "steps that were sent and no worker has taken yet", "S2.33")
OLDEST_QUEUED = Kind("durableflows_oldest_queued_seconds", ("workflow",), "how long the longest of them waits", "S2.33")
OVERDUE = Kind(
    "durableflows_overdue", ("what",), "what should have gone on by itself and is late; see `doctor`", "S2.32"
)
OLDEST_OVERDUE = Kind("durableflows_oldest_overdue_seconds", ("what",), "by how much the latest is late", "S2.32")
REQUESTS = Kind("durableflows_requests", ("workflow",), "requests that wait for an answer")
OLDEST_REQUEST = Kind("durableflows_oldest_request_seconds", ("workflow",), "age of the oldest of them", "S2.27")
EFFECTS = Kind("durableflows_effects", ("provider", "state"), "effects that are not settled: sent, in doubt, accepted")
OLDEST_DOUBT = Kind("durableflows_oldest_doubt_seconds", ("provider",), "how long the oldest of them is in doubt")
CONTRADICTIONS = Kind(
    "durableflows_contradictions", ("provider",), "effects that contradict what was told before: perhaps twice", "S2.30"
)
PROVIDERS = Kind("durableflows_provider_left_alone", ("provider", "state"), "1 for each provider that is left alone")
HELD = Kind("durableflows_steps_held", ("provider",), "steps that wait for a provider, or for room at it")
WORKERS = Kind("durableflows_workers", (), "workers that live")
SWEPT = Kind("durableflows_last_sweep_seconds", (), "seconds since anything due was looked for; -1: never")
EVENTS = Kind("durableflows_events_lately", ("workflow", "kind"), "events by kind, as the history names them")
ENDED = Kind("durableflows_runs_ended_lately", ("workflow", "state"), "runs that have ended")
LATENCY = Kind(
    "durableflows_completion_seconds_lately",
    ("workflow", "quantile"),
    "from a run's start to its end, of those that have ended well",
    "S2.34",
)
RETRIES = Kind("durableflows_retries_lately", ("workflow",), "tries after which a step waits for another", "S2.31")
LOST = Kind("durableflows_workers_lost_lately", ("workflow",), "tries whose worker was lost", "S2.29")
RESUMED = Kind(
    "durableflows_resumed_lately",
    ("workflow", "outcome"),
    "steps that had lost a worker and have ended since: done, or failed",
    "S2.29",
)
SENDS = Kind(
    "durableflows_sends_lately",
    ("provider", "kind"),
    "requests to providers: first, repeat (the same operation once more, under its key), lookup",
    "S2.30",
)

ALL: tuple[Kind, ...] = (
    *(RUNS, OLDEST_RUN, PARKED, STEPS, PEOPLE, QUEUED, OLDEST_QUEUED, OVERDUE, OLDEST_OVERDUE),
    *(REQUESTS, OLDEST_REQUEST, EFFECTS, OLDEST_DOUBT, CONTRADICTIONS, PROVIDERS, HELD, WORKERS, SWEPT),
    *(EVENTS, ENDED, LATENCY, RETRIES, LOST, RESUMED, SENDS),
)


def by_kind(samples: Iterable[Sample]) -> Mapping[Kind, list[Sample]]:
    """The samples of each metric, also of those that have none, in the order of the page."""
    found: dict[Kind, list[Sample]] = {kind: [] for kind in ALL}
    for sample in samples:
        found[sample.kind].append(sample)
    return found
