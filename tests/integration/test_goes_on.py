"""The filter that sweeps choose steps by says of runs that end what `core.ending.goes_on` says."""

from itertools import product

import pytest

from durableflows import api, clock
from durableflows.core import ending
from durableflows.core.states import RUN_MOVING, EndingPhase, RunState
from durableflows.models import StepRun, WorkflowRun
from durableflows.models.step import ENDING, GOES_ON
from durableflows.testing import World
from tests.support.flows import Provider, pay_workflow

pytestmark = pytest.mark.django_db(transaction=True)

LIVE = [*sorted(RUN_MOVING), RunState.PARKED]


def test_steps_that_are_swept_are_those_that_may_be_tried(world: World):
    """P6: of a run that ends those of its undo or clean-up alone, while that is under way; of a parked one none."""
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    runs, steps, now = WorkflowRun.objects.filter(pk=run.pk), StepRun.objects.filter(run=run), clock.now()

    found, expected = {}, {}
    for state, phase, of_cleanup in product(LIVE, EndingPhase, (False, True)):
        runs.update(state=state, ending_phase=phase, ending_reason="cancel", cleanup_at=now, cleanup_until=now)
        steps.update(of_cleanup=of_cleanup)
        place = (str(state), str(phase), of_cleanup)
        found[place] = steps.filter(GOES_ON).exists()
        moves = state in RUN_MOVING
        is_tried = ending.goes_on(is_ending=True, phase=phase, of_cleanup=of_cleanup) if state in ENDING else True
        expected[place] = moves and is_tried

    assert found == expected
    assert True in found.values()
