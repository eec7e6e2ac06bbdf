"""Two rotations of a key, or a rotation and a worker, at the same instant: nothing is sealed twice or left out."""

from functools import partial

import pytest
from django.test import override_settings

from durableflows import api, claims
from durableflows.boundaries import Boundary
from durableflows.core.states import RunState
from durableflows.doctor import verify
from durableflows.leases import Claim
from durableflows.models import RunEvent, StepRun, WorkflowRun
from durableflows.services import rotation
from durableflows.testing import World
from tests.support.parcels import Depot, parcel_workflow
from tests.support.play import assert_chain, stage
from tests.support.rivals import Rival, at_once, gate_at
from tests.support.waits import waiting

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

OLD = {"STATE_KEYS": {"k1": "the old secret"}}
BOTH = {"STATE_KEYS": {"k2": "the new secret", "k1": "the old secret"}}
NEW = {"STATE_KEYS": {"k2": "the new secret"}}


def rotate_all() -> int:
    return sum(rotation.rotate(pk) for pk in list(rotation.due().values_list("pk", flat=True)))


def test_two_rotations_at_once_seal_each_run_once(world: World):
    with override_settings(DURABLEFLOWS=OLD):
        for way in ("turn", "signal", "branches"):
            waiting(world, way)
    with override_settings(DURABLEFLOWS=BOTH):
        counts = at_once(rotate_all, rotate_all)

    assert sum(int(str(count)) for count in counts) == 3
    assert RunEvent.objects.filter(kind="run.resealed").count() == 3
    with override_settings(DURABLEFLOWS=NEW):
        assert verify().findings == ()


def test_a_claim_waits_for_a_rotation_and_goes_on_from_the_new_seal(world: World):
    with override_settings(DURABLEFLOWS=OLD):
        run = api.start(parcel_workflow(Depot()), {})
    step = StepRun.objects.get(run=run)

    with override_settings(DURABLEFLOWS=BOTH):
        with gate_at(Boundary.OPERATE_BEFORE_COMMIT) as gate:
            rotating = Rival(partial(rotation.rotate, run.pk)).begin()
            gate.wait()
            claim = Rival(partial(claims.claim, run.pk, step.pk, task_id="A", pid=1)).begin()
            claim.wait_until_blocked()

        assert rotating.outcome() is True
        assert isinstance(claim.outcome(), Claim)


def test_a_settlement_waits_for_a_rotation_and_both_are_kept(world: World):
    with override_settings(DURABLEFLOWS=OLD):
        played = stage(world)
        worker = played.hand().claim().reserve()
        worker.record(worker.act())
    with override_settings(DURABLEFLOWS=BOTH):
        with gate_at(Boundary.OPERATE_BEFORE_COMMIT) as gate:
            rotating = Rival(partial(rotation.rotate, played.run_id)).begin()
            gate.wait()
            settle = Rival(worker.settle).begin()
            settle.wait_until_blocked()

        assert rotating.outcome() is True
        assert not isinstance(settle.outcome(), BaseException)
        world.run_until_idle()

    assert_chain(played.run())
    with override_settings(DURABLEFLOWS=NEW):
        assert verify().findings == ()
        assert WorkflowRun.objects.get(pk=played.run_id).state == RunState.SUCCEEDED
