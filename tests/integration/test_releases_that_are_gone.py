"""A deploy without the code that runs began with: they stop visibly, nobody tries them, with it they go on (R36)."""

from typing import Any

import pytest

from durableflows import InvalidState, api
from durableflows.core.states import EffectState, RunState
from durableflows.models import SideEffect, StepRun, Worker, WorkflowRun
from durableflows.testing import World
from tests.support.flows import Provider
from tests.support.look import fresh, state_of, steps_of
from tests.support.refunds import person
from tests.support.stages import (
    STAGES,
    Stage,
    asking,
    deployed,
    in_doubt,
    parked,
    pass_time_with_a_worker_of_the_new_code,
    retrying,
    worker_that_knows,
)

pytestmark = pytest.mark.django_db(transaction=True)

STOPS: dict[Stage, tuple[RunState, str, str]] = {
    retrying: (RunState.PARKED, "incompatible release", "no live worker knows paying v1"),
    asking: (RunState.PARKED, "incompatible release", "no live worker knows paying v1"),
    in_doubt: (RunState.NEEDS_RECONCILIATION, "", ""),
    parked: (RunState.PARKED, "needs a person", "expired"),
}


@pytest.fixture(autouse=True)
def boss() -> None:
    """Somebody who may answer: a request that nobody can answer is an error in the log."""
    person("boss", "answer_approval")


@pytest.mark.parametrize("stage", STAGES)
def test_without_a_migration_a_run_stops_visibly_and_is_tried_by_nobody(world: World, stage: Stage, caplog: Any):
    """R36: an explicit state with the reason, no hot retry, and with the old code it goes on as if nothing had been."""
    provider = Provider()
    with deployed(provider, 1):
        run = stage(world, provider)
    with deployed(provider, 2, with_migration=False):
        pass_time_with_a_worker_of_the_new_code(world)

        stopped = fresh(run)
        state, reason, detail = STOPS[stage]
        assert (stopped.state, stopped.parked_reason) == (state, reason)
        assert detail in stopped.parked_detail
        assert api.explain(run.pk).sentence.startswith(("Needs attention", "A person must find out"))
        world.clock.advance(days=4)
        world.run_until_idle()
        assert fresh(run).row_version == stopped.row_version
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []
        with pytest.raises(InvalidState, match=r"declare @migration\(from_version=1\)"):
            api.migrate(run.pk, reason="deploy")
        assert len(provider.sends) == (0 if stage is asking else 1)
        assert api.start("paying", {"cents": 500}).version == 2
        world.run_until_idle()
    provider.sends, provider.acts = [], []
    with deployed(provider, 1, 2, with_migration=False):
        go_back(run)
        world.run_through()

        assert state_of(run) is RunState.SUCCEEDED
        # Its time to be answered has passed meanwhile.
        assert [name for name, _, _ in steps_of(run)] == ["begin", "sign_off" if stage is asking else "pay", "note"]
    assert len(provider.acts) == (0 if stage in (in_doubt, asking) else 1)


def go_back(run: WorkflowRun) -> None:
    """The old code is there again: an operator lets a parked run go on, and asks anew about what is in doubt."""
    if fresh(run).parked_reason:
        api.retry(run.pk, reason="version 1 is back")
    for row in SideEffect.objects.filter(run=run, state=EffectState.UNKNOWN):
        api.resolve_effect(row.pk, "ask_again", reason="version 1 is back", row_version=row.row_version)


def test_nobody_is_told_to_find_out_what_a_worker_of_the_old_code_can_ask(world: World):
    """P8: in the minutes of a deploy a ticker of the new code sees an effect in doubt first."""
    provider = Provider()
    with deployed(provider, 1):
        run = in_doubt(world, provider)
    worker_that_knows(world, 1)
    with deployed(provider, 2):
        world.clock.advance(minutes=2)
        world.run_until_idle()
        assert not StepRun.objects.filter(run=run, needs_person=True).exists()
        assert fresh(run).alert == ""
    with deployed(provider, 1):
        world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(provider.acts) == 1


def test_a_request_expires_where_its_code_is(world: World, caplog: Any):
    """R36: until then it stays open, and a ticker without the code makes no noise about it each second."""
    provider = Provider()
    with deployed(provider, 1):
        run = asking(world, provider)
    boot = worker_that_knows(world, 1)
    with deployed(provider, 2):
        world.clock.advance(days=3, hours=1)
        Worker.objects.filter(boot_id=boot).update(heartbeat_at=world.clock.now())
        world.run_until_idle()
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []
        assert state_of(run) is RunState.WAITING_HUMAN
    with deployed(provider, 1, 2):
        world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert [name for name, _, _ in steps_of(run)] == ["begin", "sign_off", "note"]
