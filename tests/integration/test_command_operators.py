"""`manage.py durableflows` pause, resume, extend, redrive, abandon: what they print, change, and show."""

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from durableflows import Budget, UnknownOutcome, api
from durableflows.core import registry
from durableflows.core.states import RunState
from durableflows.models import RunEvent, SideEffect, WorkflowRun
from durableflows.testing import World
from tests.integration.test_command import NOWHERE, data, said
from tests.support.flows import act_then_raise
from tests.support.look import fresh, state_of
from tests.support.parcels import Depot, lost_address, parcel_workflow

pytestmark = pytest.mark.django_db(transaction=True)

REASON = ("--reason", "stock is counted")


def failed(world: World) -> tuple[WorkflowRun, Depot]:
    depot = Depot(handing=[lost_address()])
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    return run, depot


def test_pause_and_resume(world: World, admin_user):
    run = api.start(parcel_workflow(Depot()), {})

    assert "paused; what is under way ends first" in said("pause", str(run.pk), *REASON, "--by", "admin")
    assert data("resume", str(run.pk), *REASON)["state"] == "PENDING"
    assert RunEvent.objects.get(run=run, kind="run.paused").actor_name == "admin"
    api.cancel(run.pk, reason="x")
    assert "too_late" in said("pause", str(run.pk), *REASON, code=1)


def test_extend(world: World):
    run = api.start(parcel_workflow(Depot(), limits=Budget(tool_calls=2)), {})
    with registry.isolated():
        timed = api.start(parcel_workflow(Depot(), limits=Budget(idle=timedelta(hours=1))), {})
    before = run.deadline_at

    said("extend", str(run.pk), *REASON, "--deadline", "36h", "--budget", "tool_calls=3")
    assert fresh(run).deadline_at == before + timedelta(hours=36)
    assert fresh(run).budget == {"tool_calls": 5}

    text = said("extend", str(run.pk), *REASON, "--deadline", "2030-01-31T12:00+00:00")
    assert "extended until 2030-01-31" in text
    said("extend", str(timed.pk), *REASON, "--budget", "idle=2h")
    assert fresh(timed).budget == {"idle_seconds": 3 * 3600.0}
    assert "tool_calls, " in said("extend", str(run.pk), *REASON, "--budget", "mails=3", code=1)
    assert "did you mean" in said("extend", str(run.pk), *REASON, "--budget", "toolcalls=3", code=1)
    assert "say how much more" in said("extend", str(run.pk), *REASON, code=1)


def test_redrive_shows_first_and_then_does(world: World):
    run, depot = failed(world)
    before = fresh(run).row_version
    command = ("redrive", str(run.pk), *REASON, "--step", "pay", "--repeat", "post.pay")

    shown = said(*command, "--dry-run")
    seen = data(*command, "--dry-run")

    assert fresh(run).row_version == before
    assert shown.startswith("nothing was done; redrive would be done")
    assert "does once more, although it has happened (EUR 12.50):" in shown
    assert (seen["begins"], seen["repeats"], seen["refused"]) == (["pay", "hand_over"], ["post.pay of pay"], "")
    assert seen["money"]["repeats"] == ["EUR 12.50"]

    assert "goes on from pay" in said(*command)
    world.run_until_idle()
    assert state_of(run) is RunState.SUCCEEDED
    assert len(depot.carrier.acts) == 2


def test_a_dry_run_of_what_would_be_refused_says_why_and_fails(world: World):
    run, _ = failed(world)

    shown = said("redrive", str(run.pk), *REASON, "--step", "tell", "--dry-run", code=1)

    assert "redrive would be refused: the run has not been at 'tell'" in shown
    assert "has happened, and is not done again (EUR 12.50):" in shown


def test_each_operators_verb_has_a_dry_run(world: World, admin_user):
    run = api.start(parcel_workflow(Depot()), {"ask": True})
    world.run_until_idle()
    before = fresh(run).row_version
    more = {"extend": ["--deadline", "3d"], "redrive": ["--step", "pack"], "abandon": ["--heir", "admin"]}

    refused = {}
    for verb in ("cancel", "retry", "pause", "resume", "extend", "redrive", "abandon"):
        code = 1 if verb in ("retry", "redrive") else 0
        seen = data(verb, str(run.pk), *REASON, "--dry-run", *more.get(verb, []), code=code)
        refused[verb] = bool(seen["refused"])
        if verb in ("cancel", "abandon"):
            assert seen["closes"] == ["the request 'Send it'"]

    assert {verb for verb, is_refused in refused.items() if is_refused} == {"retry", "redrive"}
    assert fresh(run).row_version == before


def test_abandon_names_the_heir(world: World, admin_user):
    depot = Depot()
    depot.carrier.faults = [act_then_raise(UnknownOutcome("cut"))]
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    seen = data("abandon", str(run.pk), *REASON, "--heir", "admin", "--dry-run")
    assert (seen["unknown"], seen["money"]["unknown"]) == (["post.pay of pay"], ["EUR 12.50"])

    assert "no active user" in said("abandon", str(run.pk), *REASON, "--heir", "nobody", code=1)
    assert "admin settles what is open" in said("abandon", str(run.pk), *REASON, "--heir", "admin")

    assert state_of(run) is RunState.ABANDONED
    assert data("show", str(run.pk))["heir"] == "admin"
    row = SideEffect.objects.get(run=run)
    world.clock.advance(minutes=5)
    given = ("--verdict", "happened", "--row-version", str(row.row_version), "--receipt", '{"id": "x"}')
    assert data("resolve", str(row.pk), *REASON, *given)["state"] == "CONFIRMED"


@pytest.mark.parametrize(
    "wrong",
    [
        ["pause", NOWHERE],
        ["redrive", NOWHERE, *REASON],
        ["abandon", NOWHERE, *REASON],
        ["extend", NOWHERE, *REASON, "--deadline", "soon"],
        ["extend", NOWHERE, *REASON, "--deadline", "-3d"],
        ["extend", NOWHERE, *REASON, "--budget", "tool_calls"],
        ["extend", NOWHERE, *REASON, "--budget", "tool_calls=many"],
    ],
)
def test_bad_usage_is_refused_before_anything_happens(wrong: list[str]):
    with pytest.raises(CommandError, match="Error: "):
        call_command("durableflows", *wrong)


@pytest.mark.parametrize("amount", ["NaN", "-1", "0", "1e400", "Infinity"])
def test_an_amount_that_is_none_is_a_message(world: World, amount: str):
    run = api.start(parcel_workflow(Depot(), limits=Budget(tool_calls=2)), {})

    assert "invalid_state" in said("extend", str(run.pk), *REASON, "--budget", f"tool_calls={amount}", code=1)
