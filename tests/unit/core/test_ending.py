"""How a run ends: it settles, cleans up, and ends, and nothing of it overtakes the other."""

from datetime import timedelta
from itertools import product

import pytest

from durableflows.core.ending import Cleanup, Ending, Next, cleanup_of, goes_on, next_of, pinned
from durableflows.core.payload import JSON
from durableflows.core.states import EndingPhase, EndingReason

SETTLING, CLEANUP, CLOSING = EndingPhase.SETTLING, EndingPhase.CLEANUP, EndingPhase.CLOSING
UNDOING, UNDONE = EndingPhase.UNDOING, EndingPhase.UNDONE
CANCEL, FAILURE, DEADLINE = EndingReason.CANCEL, EndingReason.FAILURE, EndingReason.DEADLINE
NO_YES = (False, True)


def ending(
    reason: EndingReason,
    phase: EndingPhase,
    *,
    cleans: bool = False,
    undoes: bool = False,
    to_undo: bool = False,
    children: bool = False,
    effects: bool = False,
    sends: bool = False,
    steps: bool = False,
) -> Ending:
    return Ending(
        reason=reason,
        phase=phase,
        has_cleanup=cleans,
        undoes=undoes,
        has_to_undo=to_undo,
        has_children=children,
        has_open_effects=effects,
        has_open_sends=sends,
        has_open_steps=steps,
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (ending(FAILURE, SETTLING), Next.END),
        (ending(FAILURE, SETTLING, steps=True), Next.END),
        (ending(FAILURE, SETTLING, effects=True), Next.WAIT),
        (ending(FAILURE, SETTLING, sends=True), Next.END),
        (ending(CANCEL, SETTLING, sends=True), Next.WAIT),
        (ending(CANCEL, SETTLING, steps=True), Next.END),
        (ending(FAILURE, SETTLING, cleans=True), Next.CLEAN_UP),
        (ending(FAILURE, SETTLING, to_undo=True), Next.END),
        (ending(FAILURE, SETTLING, undoes=True), Next.END),
        (ending(FAILURE, SETTLING, undoes=True, sends=True), Next.WAIT),
        (ending(FAILURE, SETTLING, undoes=True, to_undo=True, sends=True), Next.WAIT),
        (ending(FAILURE, SETTLING, undoes=True, to_undo=True, effects=True), Next.WAIT),
        (ending(FAILURE, SETTLING, undoes=True, to_undo=True, steps=True), Next.UNDO),
        (ending(FAILURE, SETTLING, undoes=True, to_undo=True, cleans=True), Next.UNDO),
        (ending(FAILURE, SETTLING, undoes=True, to_undo=True, children=True), Next.WAIT),
        (ending(FAILURE, SETTLING, children=True), Next.END),
        (ending(FAILURE, UNDOING, undoes=True, to_undo=True, steps=True), Next.WAIT),
        (ending(FAILURE, UNDOING, undoes=True, to_undo=True, sends=True), Next.UNDO),
        (ending(FAILURE, UNDOING, undoes=True, sends=True), Next.WAIT),
        (ending(FAILURE, UNDOING, undoes=True, cleans=True), Next.CLEAN_UP),
        (ending(FAILURE, UNDOING, undoes=True), Next.END),
        (ending(FAILURE, UNDONE, undoes=True, to_undo=True, steps=True, effects=True), Next.WAIT),
        (ending(FAILURE, UNDONE, undoes=True, to_undo=True, steps=True), Next.END),
        (ending(FAILURE, UNDONE, undoes=True, to_undo=True, cleans=True), Next.CLEAN_UP),
        (ending(FAILURE, CLEANUP, undoes=True, to_undo=True, cleans=True), Next.END),
        (ending(FAILURE, SETTLING, cleans=True, steps=True), Next.CLEAN_UP),
        (ending(FAILURE, SETTLING, cleans=True, effects=True), Next.WAIT),
        (ending(FAILURE, SETTLING, cleans=True, sends=True), Next.WAIT),
        (ending(CANCEL, SETTLING, cleans=True, sends=True), Next.WAIT),
        (ending(CANCEL, CLEANUP, cleans=True, steps=True), Next.WAIT),
        (ending(CANCEL, CLEANUP, cleans=True), Next.END),
        (ending(CANCEL, CLEANUP, cleans=True, sends=True), Next.WAIT),
        (ending(FAILURE, CLOSING, cleans=True, steps=True), Next.END),
        (ending(FAILURE, CLOSING, cleans=True, steps=True, effects=True), Next.WAIT),
        (ending(FAILURE, CLOSING, cleans=True, sends=True), Next.WAIT),
        (ending(DEADLINE, SETTLING, steps=True), Next.END),
    ],
)
def test_what_becomes_of_a_run_that_is_ending(given: Ending, wanted: Next):
    assert next_of(given) is wanted


@pytest.mark.parametrize("reason", list(EndingReason))
def test_nothing_ends_and_no_clean_up_begins_while_an_effect_is_open(reason: EndingReason):
    """P15, for every other combination of what is known."""
    for phase, cleans, sends, steps in product(EndingPhase, NO_YES, NO_YES, NO_YES):
        given = ending(reason, phase, cleans=cleans, effects=True, sends=sends, steps=steps)

        assert next_of(given) is Next.WAIT, given


def test_a_clean_up_begins_once():
    for reason, phase, sends, steps in product(EndingReason, (CLEANUP, CLOSING), NO_YES, NO_YES):
        assert next_of(ending(reason, phase, cleans=True, sends=sends, steps=steps)) is not Next.CLEAN_UP


@pytest.mark.parametrize(
    ("is_ending", "phase", "of_cleanup", "wanted"),
    [
        (False, SETTLING, False, True),
        (False, SETTLING, True, False),
        (True, SETTLING, False, False),
        (True, SETTLING, True, False),
        (True, CLEANUP, False, False),
        (True, CLEANUP, True, True),
        (True, CLOSING, False, False),
        (True, CLOSING, True, False),
    ],
)
def test_only_one_of_the_main_path_and_the_clean_up_goes_on(
    is_ending: bool, phase: EndingPhase, of_cleanup: bool, wanted: bool
):
    assert goes_on(is_ending=is_ending, phase=phase, of_cleanup=of_cleanup) is wanted


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("manifest", "reason", "wanted"),
    [
        ({}, FAILURE, None),
        (pinned(None, None, HOUR), CANCEL, None),
        (pinned("tell", None, HOUR), FAILURE, Cleanup("tell", HOUR)),
        (pinned("tell", None, HOUR), CANCEL, None),
        (pinned("tell", "free", HOUR / 2), CANCEL, Cleanup("free", HOUR / 2)),
        (pinned("tell", "free", HOUR), EndingReason.BUDGET, None),
        (pinned("tell", "free", HOUR), DEADLINE, None),
        (pinned("tell", "free", HOUR), "", None),
    ],
)
def test_the_clean_up_of_an_end_is_what_the_run_pinned(manifest: dict[str, JSON], reason: str, wanted: Cleanup | None):
    assert cleanup_of(manifest, reason) == wanted


def test_a_release_without_a_clean_up_pins_nothing_of_it():
    assert pinned(None, None, HOUR) == {}
