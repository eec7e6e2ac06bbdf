"""Does each run's state follow from its steps and flags, and did what has ended really end? (P15, design section 3)"""

from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from durableflows.core.plan import END_OF, Flags, run_state
from durableflows.core.states import (
    EFFECT_OPEN,
    RUN_MOVES,
    STEP_ENDED,
    STEP_OPEN,
    UNDO_PHASES,
    ApprovalState,
    EffectState,
    EndingPhase,
    RunState,
    StepState,
)
from durableflows.doctor.findings import Finding, listed, told
from durableflows.doctor.rows import CHUNK, Query, Rows, Scope, asked
from durableflows.doctor.undos import examine_undos
from durableflows.models import EffectSend, RunEvent, StepRun
from durableflows.transactions import database

Found = Iterator[tuple[UUID, str]]

OPEN_REQUEST = "the run has ended, or is ending, and request {} is still open"
OPEN_EFFECT = "the run has ended and its effect {} ({}) is {}"
BEGAN = ("run.undo_began", "run.cleanup_began")


def examine_states(scope: Scope) -> list[Finding]:
    """All findings about states and ends."""
    return [
        *listed("run-state", _run_states(scope)),
        *listed("no-open-step", _without_open_step(scope)),
        *examine_ends(scope),
        *listed("open-effect-in-ended-step", _open_effects_of_steps(scope)),
    ]


def examine_ends(scope: Scope) -> list[Finding]:
    """Findings about runs that have ended."""
    return [
        *told("end-state", asked(scope, _end_states), "the run was ending because of {}, and is {}"),
        *told("open-step-in-ended-run", asked(scope, _open_steps), "the run has ended and its step {} is {}"),
        *told("open-request-in-ended-run", asked(scope, _open_requests), OPEN_REQUEST),
        *told("open-effect-in-ended-run", asked(scope, _open_effects_of_runs), OPEN_EFFECT),
        *listed("cleanup-beside-main-path", _beside_main_path(scope)),
        *listed("sent-after-main-path", _sent_after(scope)),
        *told("cleanup-not-done", asked(scope, _not_cleaned_up), "its clean-up was not done: {}"),
        *examine_undos(scope),
    ]


def _run_states(scope: Scope) -> Found:
    """One pass over the steps of live runs; each run's state is computed again."""
    steps = scope.steps().filter(run__ended_at__isnull=True).order_by("run_id")
    rows = steps.values_list(
        "run_id", "run__state", "run__parked_reason", "run__ending_reason", "run__ending_phase", "state", "attempts"
    ).iterator(chunk_size=CHUNK)
    for (run_id, state, parked, ending, phase), group in groupby(rows, key=itemgetter(0, 1, 2, 3, 4)):
        members = list(group)
        was_claimed = any(attempts for *_, attempts in members)
        flags = Flags(parked, ending, was_claimed=was_claimed, is_undoing=phase in UNDO_PHASES)
        expected = run_state([StepState(step) for *_, step, _ in members], flags)
        if expected is not None and state != expected:
            yield run_id, f"the run is {state}; its steps and flags say {expected}"


def _without_open_step(scope: Scope) -> Found:
    still_open = StepRun.objects.using(scope.steps().db).filter(run=OuterRef("pk"), state__in=_texts(STEP_OPEN))
    runs = scope.runs().filter(ended_at__isnull=True, ending_reason="")
    for run_id, state in runs.filter(~Exists(still_open)).values_list("pk", "state").iterator(chunk_size=CHUNK):
        yield run_id, f"the run is {state} and none of its steps is open"


def _end_states(rows: Rows) -> Query:
    fits = Q(ending_reason="") | Q(state=RunState.ABANDONED)
    for reason, verb in END_OF.items():
        fits |= Q(ending_reason=str(reason), state=str(RUN_MOVES[verb][1]))
    runs = rows.runs().filter(ended_at__isnull=False).exclude(fits)
    # What was undone ends as that, whatever it was undone for.
    runs = runs.exclude(~Q(ending_reason=""), state__in=[RunState.COMPENSATED, RunState.COMPENSATION_FAILED])
    return runs.values_list("pk", "ending_reason", "state")


def _open_steps(rows: Rows) -> Query:
    steps = rows.steps().filter(run__ended_at__isnull=False, state__in=_texts(STEP_OPEN))
    return steps.values_list("run_id", "name", "state")


def _open_requests(rows: Rows) -> Query:
    ending = Q(run__ended_at__isnull=False) | ~Q(run__ending_reason="")
    return rows.requests().filter(ending, state=ApprovalState.OPEN).values_list("run_id", "pk")


def _open_effects_of_runs(rows: Rows) -> Query:
    effects = rows.effects().filter(run__ended_at__isnull=False, state__in=_texts(EFFECT_OPEN))
    return effects.exclude(run__state=RunState.ABANDONED).values_list("run_id", "effect", "pk", "state")


def _open_effects_of_steps(scope: Scope) -> Found:
    rows = scope.effects().filter(run__ended_at__isnull=True, state__in=_texts(EFFECT_OPEN))
    rows = rows.filter(step__state__in=_texts(STEP_ENDED)).exclude(state=EffectState.UNDOING)
    values = rows.values_list("run_id", "effect", "state", "pk", "step__name", "step__state")
    for run_id, effect, state, pk, name, step_state in values.iterator(chunk_size=CHUNK):
        yield run_id, f"step {name} is {step_state} and its effect {effect} ({pk}) is {state}"


def _beside_main_path(scope: Scope) -> Found:
    """A clean-up begins when every other step is closed, and nothing of it is under way outside of it."""
    for run_id, name, state, of_cleanup in asked(scope, _steps_beside):
        where = "belongs to a clean-up that has not begun" if of_cleanup else "does not belong to the clean-up"
        yield run_id, f"step {name} is {state} and {where}"


def _steps_beside(rows: Rows) -> Query:
    in_cleanup = Q(run__ending_phase__in=[EndingPhase.UNDOING, EndingPhase.CLEANUP])
    in_cleanup &= ~Q(state=StepState.COMPENSATING)
    wrong = Q(of_cleanup=False) & in_cleanup | Q(of_cleanup=True, run__ending_phase="")
    steps = rows.steps().filter(wrong, run__ended_at__isnull=True, state__in=_texts(STEP_OPEN))
    return steps.values_list("run_id", "name", "state", "of_cleanup")


def _sent_after(scope: Scope) -> Found:
    """Nothing of the main path is sent after the commit that found it quiet (P6)."""
    for run_id, step_id, effect, pk, name in asked(scope, _late_sends):
        if _came_after(run_id, step_id):
            yield run_id, f"effect {effect} ({pk}) of step {name} was sent after the run's clean-up had begun"


def _late_sends(rows: Rows) -> Query:
    sends = EffectSend.objects.using(database()).filter(kind="send", effect__step__of_cleanup=False)
    late = Exists(sends.filter(effect=OuterRef("pk"), started_at__gt=OuterRef("run__cleanup_at")))
    return rows.effects().filter(late).values_list("run_id", "step_id", "effect", "pk", "step__name")


def _came_after(run_id: UUID, step_id: UUID) -> bool:
    """Does the history say so too? Where a clock was set back, times tell nothing and its order does (P12)."""
    events = RunEvent.objects.using(database()).filter(run=run_id).order_by("sequence")
    told = list(events.values_list("kind", "step_id", "at"))
    if all(before[2] <= after[2] for before, after in pairwise(told)):
        return True
    began = max((place for place, (kind, *_) in enumerate(told) if kind in BEGAN), default=0)
    return any(kind == "effect.dispatched" and step == step_id for kind, step, _ in told[began:])


def _not_cleaned_up(rows: Rows) -> Query:
    return rows.runs().exclude(cleanup_error="").values_list("pk", "cleanup_error")


def _texts(states: frozenset[StepState] | frozenset[object]) -> list[str]:
    return [str(state) for state in states]
