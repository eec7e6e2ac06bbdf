"""What people write as they act is masked before it is stored, at every door; a reason is words that can be seen."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import serializers

from durableflows import InvalidState, UnknownOutcome, api
from durableflows.models import ApprovalDecision, RunEvent, SideEffect, WorkflowRun
from durableflows.testing import World, open_request
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow
from tests.support.look import fresh
from tests.support.parcels import Depot, parcel_workflow

pytestmark = pytest.mark.django_db(transaction=True)

GIVEN = "Zoë says:  paid with 4111 1111 1111 1111, password=hunter2"
KEPT = "Zoë says:  paid with [card …1111], password=[redacted]"
UNSEEN = ["", "  ", "\u200b\u2060"]

VERBS: dict[str, Callable[..., Any]] = {
    "cancel": api.cancel,
    "retry": api.retry,
    "pause": api.pause,
    "resume": api.resume,
    "migrate": api.migrate,
    "extend": lambda run_id, reason: api.extend(run_id, reason=reason, deadline=timedelta(days=1)),
    "edit": lambda run_id, reason: api.edit(run_id, reason=reason, changes={}),
    "redrive": lambda run_id, reason: api.redrive(run_id, reason=reason, step="pack"),
    "abandon": lambda run_id, reason: api.abandon(run_id, reason=reason, heir=None),
}


def stored(run: WorkflowRun) -> str:
    return serializers.serialize("json", [fresh(run), *RunEvent.objects.filter(run=run).order_by("pk")])


def test_reasons_of_verbs_on_a_run(world: World):
    run = api.start(parcel_workflow(Depot()), {})

    api.pause(run.pk, reason=GIVEN)
    assert fresh(run).parked_detail == f"by the system: {KEPT}"
    api.resume(run.pk, reason=GIVEN)
    api.cancel(run.pk, reason=GIVEN)
    world.run_until_idle()

    assert (fresh(run).cancel_reason, fresh(run).error_text) == (KEPT, KEPT)
    assert "4111 1111" not in stored(run)
    assert "hunter2" not in stored(run)


def test_comment_of_an_answer(world: World, admin_user: User):
    run = api.start(pay_workflow(Provider()), {"amount": 5, "ask": True})
    world.run_until_idle()
    asked = open_request(run.pk)

    api.answer(asked.pk, "reject", by=admin_user, facts_digest=asked.facts_digest, comment=GIVEN)

    assert ApprovalDecision.objects.get().comment == KEPT


def in_doubt(world: World) -> SideEffect:
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("cut"))])
    api.start(pay_workflow(provider, pay_effect(provider, key_window=None, with_lookup=False)), {"amount": 5})
    world.run_until_idle()
    return SideEffect.objects.get()


def test_reason_of_a_verdict(world: World):
    row = in_doubt(world)

    world.clock.advance(minutes=1)
    api.resolve_effect(row.pk, "did_not_happen", reason=GIVEN, row_version=row.row_version)

    assert SideEffect.objects.get().verdict_reason == KEPT


@pytest.mark.parametrize("reason", UNSEEN)
@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_on_a_run_refuses_a_reason_of_which_nothing_is_seen(world: World, verb: str, reason: str):
    run = api.start(parcel_workflow(Depot()), {})
    before = stored(run)

    with pytest.raises(InvalidState, match=f"{verb} needs a reason"):
        VERBS[verb](run.pk, reason=reason)

    assert stored(run) == before


@pytest.mark.parametrize("reason", UNSEEN)
def test_a_verdict_needs_a_reason_that_is_seen(world: World, reason: str):
    row = in_doubt(world)

    with pytest.raises(InvalidState, match="a verdict needs a reason"):
        api.resolve_effect(row.pk, "did_not_happen", reason=reason, row_version=row.row_version)
