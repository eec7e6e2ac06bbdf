"""What the doctor may find: each code with how bad it is and what helps. Codes are stable; texts may change."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

Found = tuple[str, UUID | None, str]
"""A code, the run, and what is wrong."""

FINDINGS_LISTED = 500
"""Of one code; more are counted, not listed."""


class Severity(StrEnum):
    """`broken`: a promise does not hold. `due`: a sweep is late. `attention`: a person should look."""

    BROKEN = "broken"
    DUE = "due"
    ATTENTION = "attention"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be. `run_id` is None when it concerns all runs."""

    code: str
    run_id: UUID | None
    text: str
    cure: str

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return KNOWN[self.code][0]


_EDITED = (
    "Rows were written by something else than durableflows; compare with a backup, then resolve or cancel the run."
)
_TICKER = "Start a worker with its ticker, or `manage.py durableflows ticker`; once: `manage.py durableflows sweep`."
_REPORT = (
    "The engine should have prevented this: keep the rows and report it with `manage.py durableflows show RUN --json`."
)
_KEY = (
    "Nothing says that it was changed, and nothing proves that it was not. Put the key back behind the first one "
    "(`secret-key-…` is a SECRET_KEY: under that id into STATE_KEYS when these are set, else into "
    "SECRET_KEY_FALLBACKS), then `manage.py durableflows rotate`; `retry` a run that was parked meanwhile."
)
_CANCEL = "Cancel the run: `manage.py durableflows cancel RUN --reason WHY`. "
_EXPLAIN = "See `manage.py durableflows explain RUN`; "
_RESOLVE = "Find out what happened: `manage.py durableflows resolve EFFECT ...`."

KNOWN: Mapping[str, tuple[Severity, str]] = {
    "run-state": (Severity.BROKEN, _REPORT),
    "no-open-step": (Severity.BROKEN, _CANCEL + _REPORT),
    "end-state": (Severity.BROKEN, _EDITED),
    "open-step-in-ended-run": (Severity.BROKEN, _REPORT),
    "open-request-in-ended-run": (Severity.BROKEN, _REPORT),
    "open-effect-in-ended-run": (Severity.BROKEN, _RESOLVE),
    "open-effect-in-ended-step": (Severity.BROKEN, _RESOLVE),
    "cleanup-beside-main-path": (Severity.BROKEN, _REPORT),
    "sent-after-main-path": (
        Severity.BROKEN,
        "Compare with the provider's books: what was given back may be done again.",
    ),
    "undo-astray": (Severity.BROKEN, _EDITED),
    "undone-twice": (Severity.BROKEN, "Compare with the provider's books: more was given back than was taken."),
    "dispatched-without-lease": (Severity.BROKEN, "Ask the provider what happened before anything is sent again."),
    "no-next-thing": (Severity.BROKEN, "Nothing would ever move it: cancel the run. " + _REPORT),
    "no-request": (Severity.BROKEN, "Nobody is asked and nothing expires: cancel the run. " + _REPORT),
    "request-without-step": (Severity.BROKEN, "An answer would lead nowhere: cancel the run. " + _REPORT),
    "stuck": (Severity.BROKEN, "A living ticker does not get it done: read its log for this run, then report it."),
    "confirmed-without-receipt": (Severity.BROKEN, _EDITED),
    "doubt-without-date": (Severity.BROKEN, _EDITED),
    "doubt-forgotten": (Severity.BROKEN, "An earlier send is unexplained: ask the provider. " + _REPORT),
    "operation-twice": (Severity.BROKEN, "Compare with the provider's books: it may have been done twice."),
    "arguments-changed": (Severity.BROKEN, "Cancel the run before it sends them. " + _EDITED),
    "budget-count": (Severity.BROKEN, "Limits may be passed or reached too early: compare the rows. " + _EDITED),
    "state-digest": (Severity.BROKEN, "The run is never resumed from this. " + _EDITED),
    "key-gone": (Severity.BROKEN, _KEY),
    "rolled-back": (Severity.BROKEN, "The run never goes on from this: compare with a backup, cancel it, start anew."),
    "event-chain": (Severity.BROKEN, _EDITED),
    "step-input": (Severity.BROKEN, "The step never begins with this. " + _EDITED),
    "signal-changed": (Severity.BROKEN, "The step does not believe it. " + _EDITED),
    "child-changed": (Severity.BROKEN, "The parent goes on with what it was handed. " + _EDITED),
    "output-changed": (Severity.BROKEN, "Whoever gathers it stops there: the run is parked. " + _EDITED),
    "answer-changed": (
        Severity.BROKEN,
        "The history says who decided, unless `event-chain` stands beside it. " + _EDITED,
    ),
    "request-changed": (
        Severity.BROKEN,
        "An answer is bound to the digest, not to this. " + _EDITED,
    ),
    "pinned-changed": (Severity.BROKEN, "Runs that pinned it stop there. " + _EDITED),
    "artifact-gone": (Severity.BROKEN, "Put the file back from a backup of the storage, under this name."),
    "artifact-changed": (Severity.BROKEN, "It is never read. Put the file back from a backup of the storage."),
    "artifact-unread": (Severity.BROKEN, "Nothing is proved: see whether ARTIFACT_STORAGE answers, then verify again."),
    "lease-overdue": (Severity.DUE, _TICKER),
    "retry-overdue": (Severity.DUE, _TICKER),
    "unsent": (Severity.DUE, "If a send error is named, look at the broker. " + _TICKER),
    "look-overdue": (Severity.DUE, _TICKER),
    "timer-overdue": (Severity.DUE, _TICKER),
    "crossing-overdue": (Severity.DUE, "A worker that knows the child's workflow carries it over. " + _TICKER),
    "request-overdue": (Severity.DUE, _TICKER),
    "deadline-overdue": (Severity.DUE, _TICKER),
    "end-overdue": (Severity.DUE, _TICKER),
    "cleanup-overdue": (Severity.DUE, _TICKER),
    "inherited-look-overdue": (Severity.DUE, "A worker looks it up. " + _TICKER),
    "event-overdue": (Severity.DUE, _TICKER),
    "audit-due": (Severity.DUE, "A worker looks it up. " + _TICKER),
    "probe-overdue": (
        Severity.DUE,
        "The next send takes its place: see that workers run, and that a ticker lets the waiting steps go on. "
        + _TICKER,
    ),
    "provider-paused": (
        Severity.ATTENTION,
        "Cure the reason, then `manage.py durableflows provider NAME resume --reason WHY`: the steps that wait go on.",
    ),
    "provider-open": (
        Severity.ATTENTION,
        "Nothing, when the provider comes back by itself: one request tries it after each cool-down.",
    ),
    "parked": (Severity.ATTENTION, _EXPLAIN + "cure the reason, then retry or cancel; resume what was paused."),
    "cleanup-not-done": (
        Severity.ATTENTION,
        "Do it by hand, or cure the reason and `manage.py durableflows redrive RUN --step STEP --reason WHY`.",
    ),
    "not-undone": (
        Severity.ATTENTION,
        (
            "Undo it by hand, and say so: `manage.py durableflows resolve EFFECT --verdict undone ...`. Or cure the "
            "reason and `manage.py durableflows compensate RUN --reason WHY`."
        ),
    ),
    "unanswerable": (
        Severity.ATTENTION,
        "Give somebody the right, or add somebody to the group: it is noticed by itself. Or cancel the run.",
    ),
    "inherited": (Severity.ATTENTION, "The heir finds out: `manage.py durableflows resolve EFFECT ...`."),
    "notice-failing": (
        Severity.ATTENTION,
        "Mend what its notifier needs (a mail server, an address): it is tried again by itself, until it is given up.",
    ),
    "notice-overdue": (Severity.DUE, _TICKER),
    "job-late": (
        Severity.DUE,
        "A living ticker does not get this job done: its log (`durableflows.sweeps`) says why. The other jobs go on.",
    ),
    "waits-long": (
        Severity.ATTENTION,
        "Somebody has to answer, or it expires: the console's view *Waiting for people* names who is asked.",
    ),
    "needs-person": (
        Severity.ATTENTION,
        _EXPLAIN + "then find out what happened, by the key that `manage.py durableflows show RUN` prints, and say so: "
        "`manage.py durableflows resolve EFFECT ...`.",
    ),
    "event-unmatched": (
        Severity.ATTENTION,
        "It names a key of ours that no effect has: look for it at the provider, and whose it is.",
    ),
    "event-unreadable": (
        Severity.ATTENTION,
        "Mend the effect's `event` function, then let the provider send it again: it is read anew.",
    ),
    "contradiction": (Severity.ATTENTION, "Compare with the provider's books; nothing was overwritten."),
    "unknown-release": (
        Severity.ATTENTION,
        "Start a worker with this release, or `migrate` the runs; after UNKNOWN_WORKFLOW_SECONDS they are parked.",
    ),
    "unclaimed": (Severity.ATTENTION, "Start a worker that listens to the step's queue and knows its workflow."),
    "no-ticker": (Severity.ATTENTION, _TICKER),
    "ticker-stalled": (Severity.ATTENTION, "It beats but does not sweep: read its log, then restart it."),
}

VERIFY_ONLY = frozenset(
    {
        *(
            "step-input",
            "signal-changed",
            "child-changed",
            "output-changed",
            "answer-changed",
            "request-changed",
            "pinned-changed",
        ),
        *("artifact-gone", "artifact-changed", "artifact-unread"),
    }
)
"""What the doctor does not look at: `verify` does."""


def finding(code: str, run_id: UUID | None, text: str) -> Finding:
    """A finding with the cure that goes with its code."""
    return Finding(code, run_id, text, KNOWN[code][1])


def listed(code: str, found: Iterable[tuple[UUID | None, str]]) -> list[Finding]:
    """Findings of one code; the list ends after FINDINGS_LISTED of them and says so."""
    return gathered((code, run_id, text) for run_id, text in found)


def told(code: str, rows: Iterable[Sequence[Any]], text: str) -> list[Finding]:
    """Findings of one code: of each row the run's id, and its other values filled into the text."""
    return listed(code, ((run_id, text.format(*rest)) for run_id, *rest in rows))


def gathered(found: Iterable[Found]) -> list[Finding]:
    """Findings in their order; of each code FINDINGS_LISTED at most, and then one that says so."""
    findings: list[Finding] = []
    counts: Counter[str] = Counter()
    for code, run_id, text in found:
        counts[code] += 1
        if counts[code] <= FINDINGS_LISTED:
            findings.append(finding(code, run_id, text))
        elif counts[code] == FINDINGS_LISTED + 1:
            findings.append(finding(code, None, f"and more: only the first {FINDINGS_LISTED} are listed"))
    return findings
