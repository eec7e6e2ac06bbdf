"""One ticker does what is due; the others count on it only while it sweeps, publishes and knows what they know."""

from typing import Any
from uuid import UUID

import pytest

from durableflows import api, claims
from durableflows.conf import settings
from durableflows.core import registry
from durableflows.core.keys import new_token
from durableflows.core.states import StepState
from durableflows.leases import Place
from durableflows.models import StepRun, Worker
from durableflows.testing import World
from durableflows.ticker import register, sweep_in_turn
from tests.support.flows import Provider, pay_workflow

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def other(world: World) -> Worker:
    """Another worker, whose ticker has swept just now."""
    pay_workflow(Provider())  # what this process knows
    return Worker.objects.get(boot_id=ticker(world).boot_id)


def ticker(world: World) -> Place:
    place = Place(new_token(), "w", 0, ())
    register(place)
    Worker.objects.filter(boot_id=place.boot_id).update(swept_at=world.clock.now())
    return place


def sweep_beside(**changes: Any) -> Worker:
    """Let a new ticker sweep beside others that are like this; its row."""
    Worker.objects.update(**changes)
    place = Place(new_token(), "late", 0, ())
    register(place)
    sweep_in_turn(place, may_free_stale=False)
    return Worker.objects.get(boot_id=place.boot_id)


def test_what_another_ticker_has_just_done_is_left_to_it(other: Worker):
    assert sweep_beside().swept_at is None


def test_a_ticker_that_has_not_swept_for_two_turns_is_followed(world: World, other: Worker):
    world.clock.advance(seconds=2 * settings().SWEEP_SECONDS)

    assert sweep_beside().swept_at == world.clock.now()


@pytest.mark.parametrize("changes", [{"knows": []}, {"knows": [["other", 1]]}])
def test_a_ticker_with_older_code_is_not_counted_on(world: World, other: Worker, changes: dict[str, Any]):
    """P10: it leaves the runs of workflows that it does not know to whoever knows them."""
    assert sweep_beside(**changes).swept_at == world.clock.now()


def test_a_ticker_that_has_stopped_is_not_counted_on(world: World, other: Worker):
    assert sweep_beside(stopped_at=world.clock.now()).swept_at == world.clock.now()


def test_a_ticker_with_more_code_is_counted_on(other: Worker):
    known = [list(pair) for pair in registry.known()]

    assert sweep_beside(knows=[*known, ["newer", 2]]).swept_at is None


def test_leases_are_freed_by_every_ticker(world: World, other: Worker):
    """P2, R04: who frees dead workers must not depend on one ticker."""
    step_id = leased()
    world.clock.advance(hours=1)
    Worker.objects.update(swept_at=world.clock.now())

    late = sweep_beside()

    assert late.swept_at is None
    assert StepRun.objects.get(pk=step_id).state == StepState.READY


def leased() -> UUID:
    run_id = api.start(pay_workflow(Provider()), {"amount": 5}).pk
    step = StepRun.objects.get(run=run_id)
    claims.claim(run_id, step.pk, task_id="t", pid=1)
    return step.pk


def test_a_ticker_that_cannot_publish_is_not_counted_on(world: World, other: Worker, monkeypatch: pytest.MonkeyPatch):
    """R04: with a broker that one machine cannot reach, the tickers of the others send what is due."""
    Worker.objects.all().delete()
    monkeypatch.setattr("durableflows.dispatch.is_open", lambda: False)
    cut_off = sweep_beside()
    monkeypatch.undo()

    assert cut_off.swept_at is not None
    assert sweep_beside().swept_at == world.clock.now()
