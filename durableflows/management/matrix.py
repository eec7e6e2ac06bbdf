"""The retry matrix as a page: each row is what `core` decides when it is asked, not what somebody wrote about it.

Called by `management.pages`. Reads no row and changes nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from durableflows.core.classify import answer_of, failure_of
from durableflows.core.decide import (
    LOST_WORKERS_CAP,
    Decision,
    Snapshot,
    after_loss,
    after_overrun,
    after_step,
)
from durableflows.core.definition import Retry, StepDefinition, StepKind
from durableflows.core.fold import fold
from durableflows.core.outcomes import (
    Asked,
    Conflict,
    ErrorInfo,
    Failed,
    FailureKind,
    Halted,
    InDoubt,
    Outcome,
    Question,
    Refused,
    Waits,
)
from durableflows.core.reconcile import MAX_LOOKUPS, EffectFacts, Next, next_for
from durableflows.core.states import RUN_MOVES, STEP_MOVES, EffectState
from durableflows.errors import (
    AlreadyDone,
    CredentialsRefused,
    InvalidState,
    KeyConflict,
    KeyInUse,
    LimitReached,
    NeedsHuman,
    NeverSent,
    Permanent,
    Transient,
)
from durableflows.management import library_tables
from durableflows.management.library_tables import Table, table

Telling = Callable[[Decision], str]
NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
STEP = StepDefinition(name="pay", kind=StepKind.TASK, retry=Retry(attempts=3))
FIRST = Snapshot(step=STEP, attempts=1, lost_workers=0, tries_since=NOW, is_in_doubt=False, is_accepted=False)
WITH_WAYS_ON = replace(STEP, on_failure="on_failure", on_refused="on_refused")

RAISED: tuple[Exception, ...] = (
    NeverSent("refused"),
    Transient("later"),
    Permanent("no"),
    NeedsHuman("look"),
    CredentialsRefused("key expired"),
    KeyConflict("other request"),
    KeyInUse("still at it"),
    AlreadyDone("already refunded"),
    LimitReached("used up", limit="tool_calls"),
    InvalidState("does not fit"),
    ValueError("anything else"),
)

IN_DOUBT = EffectFacts(
    name="the effect",
    state=EffectState.UNKNOWN,
    key_window=None,
    settle_seconds=30.0,
    has_lookup=False,
    resend_when_absent=False,
    accepted_within=None,
    first_dispatched_at=NOW - timedelta(minutes=5),
    settles_at=NOW - timedelta(minutes=4),
    lookup_count=0,
    next_lookup_at=None,
    lookup_must_end_by=None,
    accepted_at=None,
    person_said_absent=False,
)
KEYED = replace(IN_DOUBT, key_window=timedelta(hours=24))
ASKABLE = replace(IN_DOUBT, has_lookup=True)
ACCEPTED = replace(ASKABLE, state=EffectState.ACCEPTED, accepted_at=NOW - timedelta(minutes=5))
TOLD = replace(ACCEPTED, has_lookup=False, has_event=True, accepted_within=timedelta(days=1))
ABSENT = replace(ASKABLE, state=EffectState.ABSENT)

TOP = """\
# Retry matrix

Printed from `core.classify`, `core.phases`, `core.decide` and `core.reconcile` by `manage.py durableflows graph
--write-docs`; do not edit.

Only the engine retries. Celery never retries a step, and an effect's function makes one try a call.

## What an exception means

Inside an effect's function it speaks of that one send; anywhere else in a step it speaks of the attempt.
`step(permanent=…, transient=…)` maps exceptions of your own, outside effects. An answer that says "not done" gives
PLANNED or REJECTED only when no earlier send of the effect is unexplained; otherwise the effect stays in doubt."""
ATTEMPTS = """\
## How an attempt ended, and what follows

A delay doubles from `base_seconds` up to `cap_seconds`; it is drawn between a half and one and a half of that. What the
provider asked for is never shortened. The three columns differ in the tries that are left and in what the step
declares."""
ATTEMPTS_IN_DOUBT = """\
An attempt that ends while an effect of it is in doubt always takes the row "in doubt", whatever was raised.

## The worker is gone

A lost worker is not counted against `Retry.attempts`."""
EFFECTS = f"""\
## An effect that is not settled

A halted run is parked or ending: nothing of it is sent again. After {MAX_LOOKUPS} lookups without an answer a person is
asked."""


def page() -> str:
    """The whole of docs/reference/retry-matrix.md."""
    parts = [TOP, table(("Raised", "Inside an effect", "Elsewhere in the step"), exceptions()), *library_tables.parts()]
    heads = ("The attempt", "Tries are left", "None is left", "None is left, with `on_failure` and `on_refused`")
    parts += [ATTEMPTS, table(heads, failures()), ATTEMPTS_IN_DOUBT, table(("When it was lost", "Then"), losses())]
    parts += [EFFECTS, table(("The effect", "The run goes on", "No try is left", "The run is halted"), effects())]
    return "\n\n".join(parts) + "\n"


def exceptions() -> Table:
    """Each exception with what the two readers make of it."""
    rows = []
    for error in RAISED:
        answer = answer_of(error)
        change = fold(
            EffectState.DISPATCHED, answer.kind, is_holder=True, doubted=False, run_ended=False, same_receipt=False
        )
        state = "UNKNOWN" if change.verb == "doubt" else "REJECTED" if change.verb == "reject" else "PLANNED"
        name = "any other exception" if isinstance(error, ValueError) else f"`{type(error).__name__}`"
        rows.append((name, f"{answer.kind}: the effect is {state}", str(failure_of(error, STEP).kind)))
    return rows


def outcomes() -> list[tuple[str, Outcome]]:
    """Each way an attempt can end without having settled its step."""
    error = ErrorInfo("", "", "why")
    return [
        *((f"failed: {kind}", Failed(kind, error)) for kind in FailureKind),
        ("in doubt", InDoubt()),
        ("the provider has accepted, and is not done", Waits("not done")),
        ("the recheck refused", Refused("why")),
        ("an approval asked its question", Asked(Question("title", {}, {}))),
        ("another branch changed the same fields of the state", Conflict(("amount",))),
        ("the run was halted meanwhile", Halted()),
    ]


def failures() -> Table:
    """Each way an attempt ends with the decision for it."""
    last = replace(FIRST, attempts=STEP.retry.attempts)
    views = (FIRST, last, replace(last, step=WITH_WAYS_ON))
    return [(name, *(decided(view, outcome) for view in views)) for name, outcome in outcomes()]


def decided(view: Snapshot, outcome: Outcome, *, told: Telling | None = None) -> str:
    """What is decided when an attempt ends like this, in a few words, or in those of `told`."""
    return (told or said)(after_step(view, outcome, NOW, Random(0)))  # noqa: S311 - only shown


def losses(first: Snapshot = FIRST, *, told: Telling | None = None) -> Table:
    """What becomes of a step whose worker died."""
    say = told or said
    cases = (
        ("before anything was sent", first),
        (f"the same, for the {LOST_WORKERS_CAP}rd time", replace(first, lost_workers=LOST_WORKERS_CAP - 1)),
        ("while an effect was under way", replace(first, is_in_doubt=True)),
        ("while a provider was at work on an effect", replace(first, is_accepted=True)),
    )
    ended = (
        ("at its hard time limit, with tries left", first),
        ("at its hard time limit, with none left", replace(first, attempts=first.step.retry.attempts)),
    )
    return [
        *((name, say(after_loss(view, "its worker died"))) for name, view in cases),
        *((name, say(after_overrun(view, NOW, Random(0)))) for name, view in ended),  # noqa: S311 - only shown
    ]


def said(decision: Decision) -> str:
    """A decision in a few words: where the step goes, and what that does to the run."""
    target = str(STEP_MOVES[decision.verb][1]) if decision.verb else "stays"
    if decision.park is not None:
        return f"run PARKED ({decision.park.reason})"
    if decision.next_steps:
        return f"step {target}, goes on with `{decision.next_steps[0]}`"
    if decision.end is not None:
        return f"step {target}, run ends as {RUN_MOVES[decision.end.verb][1]}"
    return f"step {target}, after a delay" if decision.delay_seconds else f"step {target}"


def effects() -> Table:
    """What an unsettled effect needs next."""
    cases = (
        ("in doubt, the provider knows our key", KEYED),
        ("in doubt, the provider knows our key and says that it is already done", replace(KEYED, said_already=True)),
        ("the same, with a lookup", replace(KEYED, has_lookup=True, said_already=True)),
        ("in doubt, the key's time is over, no lookup", replace(KEYED, first_dispatched_at=NOW - timedelta(days=2))),
        ("in doubt, the key's time is over, a lookup", replace(ASKABLE, first_dispatched_at=NOW - timedelta(days=2))),
        ("in doubt, no key, a lookup, a request may still arrive", replace(ASKABLE, settles_at=NOW + timedelta(1))),
        ("in doubt, no key, a lookup", ASKABLE),
        ("in doubt, no key, lookups used up", replace(ASKABLE, lookup_count=MAX_LOOKUPS)),
        ("in doubt, no key, no lookup", IN_DOUBT),
        ("accepted, a lookup", ACCEPTED),
        ("accepted, longer than `accepted_within`", replace(ACCEPTED, accepted_within=timedelta(seconds=1))),
        ("accepted, no lookup", replace(ACCEPTED, has_lookup=False)),
        ("accepted, no lookup, an `event` and `accepted_within`", TOLD),
        ("a lookup did not find it", ABSENT),
        ("a lookup did not find it, `resend_when_absent`", replace(ABSENT, resend_when_absent=True)),
        (
            "the same, and the provider had said that it is already done",
            replace(ABSENT, resend_when_absent=True, said_already=True),
        ),
        ("a person said that it did not happen", replace(ABSENT, person_said_absent=True)),
        ("refused by the provider", replace(IN_DOUBT, state=EffectState.REJECTED)),
    )
    return [(name, *nexts(facts)) for name, facts in cases]


def nexts(facts: EffectFacts) -> tuple[str, str, str]:
    """What an effect needs next while its run goes on, when its step has no try left, and in a halted run."""
    return _next(facts), _next(facts, has_tries=False), _next(facts, is_halted=True)


def _next(facts: EffectFacts, *, is_halted: bool = False, has_tries: bool = True) -> str:
    move = next_for(facts, NOW, is_halted=is_halted, has_tries=has_tries, not_before=NOW)
    if move.next is Next.RESEND:
        return "sent again, " + ("new key" if facts.state is EffectState.ABSENT else "same key")
    if move.next is Next.WAIT and facts.state is EffectState.ACCEPTED and not facts.has_lookup:
        return "waits for the provider's word"
    return {
        Next.SETTLED: "nothing: it is settled",
        Next.LOOK_UP: "looked up",
        Next.WAIT: "waits, then looked up",
        Next.PERSON: "a person decides",
    }[move.next]
