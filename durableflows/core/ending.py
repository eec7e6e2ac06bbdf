"""How a run ends: what is under way is settled first, then its clean-up runs, and only then it reaches its end.

    settling --- nothing is open any more ---> undo --- all is undone, or was tried ---> clean-up --- done ---> ended
                                                 |                                        '--- failed, late ---> closing
                                                 '--- its time is over ---> undone (settled) ---> clean-up

A run without an undo, or without a clean-up for its reason, leaves these out. Pure. Source: P6, P15; protocol, rule 10.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from durableflows.core.payload import JSON
from durableflows.core.states import EndingPhase, EndingReason

DEFAULT_WITHIN = timedelta(hours=1)
AT_WORK = frozenset({EndingPhase.UNDOING, EndingPhase.CLEANUP})
"""Phases in which steps of the end itself are tried."""
BEFORE_CLEANUP = frozenset({EndingPhase.SETTLING, EndingPhase.UNDOING, EndingPhase.UNDONE})


class Next(StrEnum):
    """What becomes of a run that is ending."""

    WAIT = "wait"
    UNDO = "undo"
    CLEAN_UP = "clean up"
    END = "end"


@dataclass(frozen=True, slots=True)
class Cleanup:
    """The step that a clean-up begins with, and how long all of it may take."""

    step: str
    within: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A run that is ending, as of the lock.

    has_cleanup        its release declares one for this reason
    undoes             what it did is undone for this reason
    has_to_undo        something that it did can be undone, and is not yet
    has_children       what it started is to be undone with it, and is not yet
    has_open_effects   an outcome is unknown or pending (P15)
    has_open_sends     a request may still be on its way (protocol, rule 3)
    has_open_steps     a step has not ended
    """

    reason: str
    phase: EndingPhase
    has_cleanup: bool
    undoes: bool
    has_to_undo: bool
    has_children: bool
    has_open_effects: bool
    has_open_sends: bool
    has_open_steps: bool


def pinned(on_failure: str | None, on_cancel: str | None, within: timedelta) -> dict[str, JSON]:
    """What a run's manifest keeps of it: any process can begin a clean-up, also one without the workflow's code."""
    steps = {EndingReason.FAILURE: on_failure, EndingReason.CANCEL: on_cancel}
    declared: dict[str, JSON] = {str(reason): step for reason, step in steps.items() if step is not None}
    return {"cleanup": {**declared, "seconds": within.total_seconds()}} if declared else {}


def cleanup_of(manifest: object, reason: str) -> Cleanup | None:
    """The clean-up of a run that ends for this reason. A limit has none: who extends it lets the run go on."""
    kept = manifest.get("cleanup") if isinstance(manifest, Mapping) else None  # somebody may have put anything there
    step = kept.get(reason) if isinstance(kept, dict) else None
    if not isinstance(kept, dict) or not isinstance(step, str):
        return None
    seconds = kept.get("seconds")
    return Cleanup(step, timedelta(seconds=seconds) if isinstance(seconds, int | float) else DEFAULT_WITHIN)


def next_of(ending: Ending) -> Next:
    """Say what becomes of a run that is ending.

    Nothing of the main path may arrive after a cancel is confirmed, nor while a clean-up takes back what it did.
    """
    if ending.phase in AT_WORK and ending.has_open_steps:
        return Next.WAIT
    if ending.phase is EndingPhase.UNDOING and ending.has_to_undo:  # all of the main path has landed before the first
        return Next.UNDO
    if ending.phase is EndingPhase.SETTLING and ending.undoes and ending.has_children:
        return Next.WAIT
    must_land = ending.has_cleanup or ending.undoes or ending.reason == EndingReason.CANCEL
    if ending.has_open_effects or (must_land and ending.has_open_sends):
        return Next.WAIT
    if ending.phase is EndingPhase.SETTLING and ending.undoes and ending.has_to_undo:
        return Next.UNDO
    if ending.phase in BEFORE_CLEANUP and ending.has_cleanup:
        return Next.CLEAN_UP
    return Next.END


def goes_on(*, is_ending: bool, phase: EndingPhase, of_cleanup: bool) -> bool:
    """May a step of a run be tried, sent and waited for? In a run that is ending only those that undo or clean up."""
    if phase in AT_WORK:
        return of_cleanup
    return not is_ending and not of_cleanup
