"""Health as its page shows it: each figure in words, with a page to go on from. Reads only."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from durableflows.health import Check, Health
from durableflows.reading.standing import span

Context = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Spec:
    """`now`: how the time is said, where {} is it, "" for what is no time; `noun`: what is counted beside it;
    `where`: the page of workers, or a view of the list of runs.
    """

    words: str
    now: str = "for {}"
    noun: str = ""
    where: str = ""


WORKERS = "workers"
_AGO, _DONE = "{} ago", "done {} ago"
_SPECS: Mapping[str, _Spec] = {
    "workers": _Spec("Workers", "", where=WORKERS),
    "last_sweep": _Spec("Last look for what is due", _AGO, where=WORKERS),
    "jobs": _Spec("The periodic job that waits longest", _DONE, "job", WORKERS),
    "outbox": _Spec("Steps that wait to be sent to a worker", noun="step", where="unsent"),
    "expired_lease": _Spec("Steps that their worker should have ended", noun="step", where="leases"),
    "overdue": _Spec("Retries, timers, requests and deadlines that are late", "by {}", "row", "stuck"),
    "queue": _Spec("Steps that were sent and wait for a worker", noun="step", where="queued"),
    "oldest_wait": _Spec("Questions that nobody has answered", noun="request", where="asked"),
    "contradictions": _Spec("Effects that may have happened twice", ""),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: what it is, how it stands, from where on it is red, and where to go."""

    words: str
    now: str
    counted: str
    limit: str
    check: Check
    address: str


def page(seen: Health) -> Context:
    """All that the page shows. What is red, what fails and what was never done stand first."""
    rows = [_row(check, seen) for check in seen.checks]
    return {
        "rows": sorted(rows, key=lambda one: not one.check.is_red),
        "red": [one for one in rows if one.check.is_red],
        "jobs": sorted(seen.jobs, key=lambda job: (not job.error, job.ran_at is not None, job.ran_at or seen.at)),
        "has_failed": any(job.error for job in seen.jobs),
        "states": [
            *(("Runs", "", state, count, _runs(state=state)) for state, count in seen.runs.items()),
            *(("Steps", "steprun", state, count, "") for state, count in seen.steps.items()),
        ],
    }


def _row(check: Check, seen: Health) -> Row:
    spec = _SPECS[check.name]
    counted = f"{check.count:,} {spec.noun}{'' if check.count == 1 else 's'}" if check.count and spec.noun else ""
    limit = _lasts(check.limit, seen) if spec.now else ""
    return Row(spec.words, _now(check, spec, seen), counted, limit, check, _address(spec.where))


def _now(check: Check, spec: _Spec, seen: Health) -> str:
    if spec.where == WORKERS and not seen.runs:
        return "nothing is under way"
    if check.name == "workers":
        return "none lives" if check.is_red else "at work"
    if not spec.now:
        return f"{check.value:,.0f}"
    if not check.value and spec.now not in (_AGO, _DONE):
        return "none"
    return spec.now.format(_lasts(check.value, seen))


def _lasts(seconds: float, seen: Health) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return span(seen.at, seen.at + timedelta(seconds=seconds)).replace("\u00a0", " ")


def _address(where: str) -> str:
    if where == WORKERS:
        return reverse("durableflows:workers")
    return _runs(show=where) if where else ""


def _runs(**narrowed: str) -> str:
    return f"{reverse('durableflows:runs')}?{urlencode(narrowed)}"
