"""Events that come at once, and while somebody works on the run: real connections, real requests (R20, R21)."""

import http.client
import json
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connections

from durableflows import api, webhooks
from durableflows.boundaries import Boundary
from durableflows.core.states import EffectState, RunState
from durableflows.doctor import examine
from durableflows.models import ProviderEvent, RunEvent, SideEffect, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World
from durableflows.webhooks import StripeScheme
from tests.support.flows import Provider, answer_pending, pay_effect, pay_workflow, read_event, told
from tests.support.rivals import Rival, at_once, gate_at
from tests.support.webhook_urls import SECRETS

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.support.webhook_urls"),
]
COPIES = 10


@pytest.fixture
def pending(world: World) -> WorkflowRun:
    """A run whose payment the provider has accepted."""
    provider = Provider(faults=[answer_pending])
    run = api.start(pay_workflow(provider, pay_effect(provider, event=read_event, with_lookup=False)), {"amount": 5})
    world.run_until_idle()
    return run


def effect_of(run: WorkflowRun) -> SideEffect:
    return SideEffect.objects.get(run=run)


def assert_one_transition(world: World, run: WorkflowRun, copies: int) -> None:
    """One event, one settlement, one end; nothing broken."""
    world.run_until_idle()
    event = ProviderEvent.objects.get()
    assert (event.copies, event.verdict) == (copies, "settled")
    states = [line.data["state"] for line in RunEvent.objects.filter(run=run, kind="effect.recorded")]
    assert states == ["ACCEPTED", "CONFIRMED"]
    assert RunEvent.objects.filter(run=run, kind="effect.event").count() == 1
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED
    assert [finding for finding in examine(run.pk) if finding.severity == "broken"] == []


def test_ten_copies_at_once_are_one_event_and_one_transition(world: World, pending: WorkflowRun):
    """R20."""
    body = told("done", key=effect_of(pending).key)

    told_ = at_once(*[lambda: api.provider_event("test", "evt_1", body)] * COPIES)

    assert {type(one).__name__ for one in told_} == {"ProviderEvent"}, told_
    assert_one_transition(world, pending, COPIES)


@pytest.mark.parametrize("is_atomic", [True, False], ids=["ATOMIC_REQUESTS", "autocommit"])
def test_ten_requests_at_once_are_all_answered_with_success(
    world: World, pending: WorkflowRun, live_server: Any, monkeypatch: pytest.MonkeyPatch, is_atomic: bool
):
    """R20: over real HTTP, and with a transaction around each request switched on."""
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", is_atomic)
    raw = json.dumps(told("done", key=effect_of(pending).key)).encode()
    header = StripeScheme().sign(raw, SECRETS[0], world.clock.now().timestamp())

    headers = {"Stripe-Signature": header, "Content-Type": "application/json"}

    def send() -> int:
        with closing(http.client.HTTPConnection(urlsplit(live_server.url).netloc, timeout=30)) as line:
            line.request("POST", "/given/", raw, headers)
            with line.getresponse() as answer:
                answer.read()
                return answer.status

    assert at_once(*[send] * COPIES) == [200] * COPIES
    assert_one_transition(world, pending, COPIES)


def test_different_events_about_one_effect_at_once_end_in_what_is_true(world: World, pending: WorkflowRun):
    """R20: 'pending', 'done' and a wrong amount at the same instant: one settles, one is old, one is loud."""
    key = effect_of(pending).key
    bodies = [told("pending", key=key), told("done", key=key), told("done", key=key, amount=6)]

    at_once(*[
        lambda number=number, body=body: api.provider_event("test", f"evt_{number}", body)
        for number, body in enumerate(bodies)
    ])  # fmt: skip
    world.run_until_idle()

    verdicts = dict(ProviderEvent.objects.values_list("event_id", "verdict"))
    assert verdicts["evt_0"] in ("known", "older")
    assert (verdicts["evt_1"], verdicts["evt_2"]) == ("settled", "contradiction")
    assert effect_of(pending).state == EffectState.CONFIRMED
    assert "amount" in effect_of(pending).contradiction


def test_an_event_does_not_wait_for_whoever_works_on_the_run(world: World, pending: WorkflowRun):
    """The provider gets its answer at once; a sweep judges what it could not."""
    body = told("done", key=effect_of(pending).key)
    with gate_at(Boundary.CANCEL_BEFORE_COMMIT) as gate:
        canceller = Rival(lambda: api.cancel(pending.pk, reason="changed his mind")).begin()
        gate.wait()
        event = api.provider_event("test", "evt_1", body)
        assert (event.verdict, event.judge_at is not None) == ("", True)
        gate.open()
        canceller.outcome()

    world.run_until_idle()
    event.refresh_from_db()
    assert event.verdict == "settled"
    assert effect_of(pending).state == EffectState.CONFIRMED


def test_two_tickers_and_the_door_judge_an_event_once(world: World, pending: WorkflowRun):
    """The verdict is looked at again under the locks."""
    body = told("done", key=effect_of(pending).key)
    with gate_at(Boundary.EVENT_JUDGED_BEFORE_COMMIT) as gate:
        door = Rival(lambda: api.provider_event("test", "evt_1", body)).begin()
        gate.wait()
        late = [Rival(lambda: sweeps.judge_events(world.clock.now())).begin() for _ in range(2)]
        assert [ticker.outcome() for ticker in late] == [0, 0]
        gate.open()
        door.outcome()

    assert_one_transition(world, pending, 1)


def test_whoever_found_it_unjudged_before_the_lock_does_not_judge_it_again(
    world: World, pending: WorkflowRun, monkeypatch: pytest.MonkeyPatch
):
    """A ticker reads the event, then somebody judges it, then the ticker gets the locks."""
    from durableflows.services import provider_events

    key = effect_of(pending).key
    places = provider_events._places

    def judged_meanwhile(event: ProviderEvent) -> Any:
        monkeypatch.setattr(provider_events, "_places", places)
        found = places(event)
        assert provider_events.settle(event.pk)
        return found

    monkeypatch.setattr(provider_events, "_places", judged_meanwhile)
    api.provider_event("test", "evt_1", told("done", key=key))

    assert_one_transition(world, pending, 1)


def test_the_door_is_outside_of_the_request_s_transaction(monkeypatch: pytest.MonkeyPatch):
    """What is stored stays stored, whatever a middleware does to the request afterwards."""
    view = webhooks.ProviderWebhook.as_view(provider="test", secrets=("x",))

    assert vars(view)["_non_atomic_requests"] == set(connections)
