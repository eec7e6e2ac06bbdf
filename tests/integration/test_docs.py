"""The how-tos work: their workflows run, and the test that one of them shows passes."""

import re
import sys
import time
from functools import partial
from types import ModuleType
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.core.mail import EmailMessage

from durableflows import EffectCall, EventOutcome, api
from durableflows.core import registry
from durableflows.core.states import ApprovalState, EffectState, RunState
from durableflows.models import ApprovalRequest, SideEffect, WorkflowRun
from durableflows.testing import Boundary, World, crash_at, virtual
from tests.contract import docs
from tests.contract.source import ROOT

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sample(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """What a page of docs declares."""
    page = ROOT / "docs" / f"{request.param}.md"
    module = ModuleType("sample")
    monkeypatch.setitem(sys.modules, "sample", module)
    with registry.isolated():
        exec(compile(docs.source(page), str(page), "exec"), vars(module))
        yield vars(module)


@pytest.mark.parametrize("sample", ["quickstart"], indirect=True)
def test_the_first_run_succeeds(sample: dict[str, Any]):
    with virtual() as world:
        run = api.start(sample["Welcome"], {"name": "Ada"}, key="welcome:1")
        world.run_until_idle()

    run.refresh_from_db()
    assert (run.state, run.result) == (RunState.SUCCEEDED, {"said": "Welcome, Ada"})


@pytest.mark.parametrize("sample", ["howto/write-an-effect"], indirect=True)
def test_the_shown_test_passes(sample: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    sample["test_a_lost_answer_does_not_refund_twice"](None, monkeypatch)

    paid = SideEffect.objects.get()
    assert (paid.state, paid.send_count) == ("CONFIRMED", 2), "it was not a lost answer that was asked again"


@pytest.mark.parametrize("sample", ["howto/write-an-effect"], indirect=True)
def test_the_shown_lookup_takes_a_refund_that_failed_later_for_none(
    sample: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    def provider(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(200, json={"id": "re_1", "status": "pending"})
        return httpx.Response(200, json={"data": [{"id": "re_1", "status": "failed"}]})

    transport = httpx.MockTransport(provider)
    monkeypatch.setitem(sample, "client", lambda call: httpx.Client(transport=transport, base_url="https://x.example"))
    with virtual() as world:
        run = api.start(sample["Refund"], {"charge_id": "ch_1", "amount": sample["Money"](1_000, "USD")})
        world.run_through()

    run.refresh_from_db()
    assert run.state == RunState.FAILED
    assert SideEffect.objects.get(run=run).state == EffectState.REJECTED


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("succeeded", "HAPPENED"), ("pending", "PENDING"), ("failed", "FAILED"), ("canceled", "FAILED")],
)
@pytest.mark.parametrize("sample", ["howto/receive-webhooks"], indirect=True)
def test_the_shown_reader_says_of_each_status_what_it_means(sample: dict[str, Any], status: str, outcome: str):
    refund = {"object": "refund", "id": "re_1", "charge": "ch_1", "amount": 500, "currency": "usd", "metadata": {}}

    reading = sample["read_refund_event"]({"created": 1767603600, "data": {"object": {**refund, "status": status}}})

    assert reading.outcome == EventOutcome[outcome]
    assert (reading.receipt is None) == (outcome == "FAILED")


@pytest.mark.parametrize("sample", ["howto/write-an-effect"], indirect=True)
def test_the_shown_mail_has_one_message_id(sample: dict[str, Any], mailoutbox: list[EmailMessage]):
    call = EffectCall(
        key="df_1", operation="mail.send", effect="mail.send", provider="mail", run_id="run", step="tell", send=1,
        first_dispatched_at=None, timeout_seconds=10.0, send_by=time.monotonic() + 5,
    )  # fmt: skip

    receipt = sample["send_mail"].function(call, to="ada@example.com", charge_id="ch_1")

    assert [mail.extra_headers["Message-ID"] for mail in mailoutbox] == [receipt.message_id] == ["<df_1@shop.example>"]


@pytest.mark.parametrize("sample", ["howto/approve-in-admin"], indirect=True)
def test_the_shown_approval_can_be_given(sample: dict[str, Any]):
    boss = User.objects.create_superuser("boss")
    with virtual() as world:
        state = {"employee": "Ada", "amount": sample["Money"](100_00, "USD")}
        run = api.start(sample["Bonus"], state, by=User.objects.create_user("clerk"))
        answer(world, run, by=boss)

    run.refresh_from_db()
    assert run.state == RunState.SUCCEEDED


def answer(world: World, run: WorkflowRun, *, by: User) -> None:
    world.run_until_idle()
    request = ApprovalRequest.objects.get(run=run, state=ApprovalState.OPEN)
    assert re.fullmatch(r"Bonus of USD 100\.00 for Ada", request.title)
    api.answer(request.pk, "approve", by=by, facts_digest=request.facts_digest)
    world.run_until_idle()


@pytest.mark.parametrize("sample", ["howto/wait-and-branch"], indirect=True)
def test_the_order_is_checked_paid_and_closed(sample: dict[str, Any]):
    with virtual() as world:
        run = api.start(sample["Order"], {"parcels": ["a", "b"]})
        world.run_until_idle()
        world.clock.advance(days=8)
        world.run_until_idle()
        for _ in range(2):
            sample["payment_arrived"](str(run.pk), {"id": 1, "amount": 5})
        world.run_until_idle()
        world.clock.advance(days=1)
        world.run_until_idle()

    run.refresh_from_db()
    assert (run.state, run.result, run.data["checked"]) == (RunState.SUCCEEDED, 2, ["a is fine", "b is fine"])
    notes = [event.data["text"] for event in run.events.filter(kind="run.note").order_by("sequence")]
    assert notes == ["reminded", "paid: {'amount': 5}"]


@pytest.mark.parametrize("sample", ["howto/test-your-workflow"], indirect=True)
def test_the_shown_tests_of_a_workflow_pass(sample: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sample, "faulttest", partial(sample["faulttest"], failures=1))
    sample["test_refunds_survive"](None)
    assert sample["faulttest"](sample["Refund"], sample["large_refund"], schedules=4).holds

    with virtual() as world:
        crash = lambda boundary: crash_at(Boundary(boundary))  # noqa: E731 - as the fixture does
        sample["test_a_worker_dies_after_the_money_moved"](world, crash, monkeypatch)
