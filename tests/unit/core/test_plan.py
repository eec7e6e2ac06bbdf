"""Where a run stands: the state follows from its steps and flags."""

import itertools

import pytest

from durableflows.core.plan import END_OF, VERB_OF, Flags, run_state
from durableflows.core.states import RUN_LIVE, RUN_MOVES, STEP_ENDED, EndingReason, RunState, StepState

S, R = StepState, RunState
PLAIN = Flags("", "", was_claimed=True)


@pytest.mark.parametrize(
    ("steps", "flags", "wanted"),
    [
        ([S.READY], Flags("", "", was_claimed=False), R.PENDING),
        ([S.READY], PLAIN, R.RUNNING),
        ([S.RUNNING], PLAIN, R.RUNNING),
        ([S.RETRY_SCHEDULED], PLAIN, R.RUNNING),
        ([S.WAITING_HUMAN], PLAIN, R.WAITING_HUMAN),
        ([S.WAITING], PLAIN, R.WAITING),
        ([S.NEEDS_RECONCILIATION], PLAIN, R.NEEDS_RECONCILIATION),
        ([S.RUNNING, S.NEEDS_RECONCILIATION], PLAIN, R.NEEDS_RECONCILIATION),
        ([S.WAITING_HUMAN, S.RUNNING], PLAIN, R.RUNNING),
        ([S.WAITING, S.WAITING_HUMAN], PLAIN, R.WAITING_HUMAN),
        ([S.SUCCEEDED, S.READY], PLAIN, R.RUNNING),
        ([S.SUCCEEDED], PLAIN, None),
        ([], PLAIN, None),
        ([S.SUCCEEDED, S.CANCELLED, S.FAILED_PERMANENT], PLAIN, None),
        ([S.RUNNING], Flags("paused", "", was_claimed=True), R.PARKED),
        ([S.READY], Flags("paused", "", was_claimed=False), R.PARKED),
        ([S.RUNNING], Flags("", "cancel", was_claimed=True), R.ENDING),
        ([S.RUNNING], Flags("paused", "cancel", was_claimed=True), R.ENDING),
    ],
)
def test_a_run_s_state(steps: list[StepState], flags: Flags, wanted: RunState | None):
    assert run_state(steps, flags) is wanted


def test_every_mix_of_steps_has_a_state_that_a_move_leads_to():
    """P10: an open step never leaves its run without a place."""
    known = [state for state in StepState if state is not S.COMPENSATING]
    for mix in itertools.combinations(known, 3):
        found = run_state(mix, PLAIN)
        assert (found is None) is (set(mix) <= STEP_ENDED)
        if found is not None:
            assert found in RUN_LIVE
            assert RUN_MOVES[VERB_OF[found]][1] is found


def test_every_reason_to_end_has_its_end():
    assert set(END_OF) == set(EndingReason)
    assert {RUN_MOVES[verb][1] for verb in END_OF.values()} == {
        R.CANCELLED,
        R.DEADLINE_EXCEEDED,
        R.EXHAUSTED_BUDGET,
        R.FAILED,
        R.COMPENSATED,
    }
