"""Refunds that the provider tells about on its own: its sandbox signs and sends, a real server takes it (R17, R20)."""

import logging
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from customer_ops import services
from customer_ops.gateways.payments import PaymentsClient
from customer_ops.models import Charge, RefundRequest
from customer_ops.sandbox.control import RunningSandbox
from durableflows.core.states import EffectState, RunState
from durableflows.models import ProviderEvent, SideEffect, StepRun, WorkflowRun
from durableflows.testing import FakeClock, World, virtual
from tests.support.desk import make_agent, make_charge, make_order, run_id_of, usd
from tests.support.payments import KEY

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]
SECRET = "whsec_of_the_account"


@pytest.fixture
def world(settings: LazySettings, sandbox: RunningSandbox, live_server: Any) -> Iterator[World]:
    """Played workers; time begins at the provider's, whose events go to a real server of ours."""
    settings.PAYMENTS_URL, settings.PAYMENTS_KEY = sandbox.url, KEY
    settings.PAYMENTS_WEBHOOK_SECRETS = [SECRET]
    with virtual(FakeClock(datetime.now(UTC))) as world:
        sandbox.webhook(f"{live_server.url}/webhooks/payments/", secret=SECRET)
        yield world
        sandbox.webhook("", secret="")


@pytest.fixture
def agent() -> User:
    return make_agent()


@pytest.fixture
def charge(payments: PaymentsClient) -> Charge:
    """A charge of 100 dollars that the provider knows."""
    receipt = payments.create_charge(key=str(uuid.uuid4()), amount=usd("100.00"))
    return make_charge(usd("100.00"), order=make_order(usd("100.00"), number="R-1"), provider_id=receipt.id)


def ask(charge: Charge, by: User) -> RefundRequest:
    return services.request_refund(charge.pk, usd("60.00"), "broken", by=by, form_token=uuid.uuid4())


def ask_pending(world: World, sandbox: RunningSandbox, charge: Charge, by: User) -> RefundRequest:
    """A refund that the provider has accepted and is not done with; it has said so in an event, too."""
    sandbox.fault("pending", path="/v1/refunds")
    request = ask(charge, by)
    world.run_until_idle()
    sandbox.wait_until_told()
    assert effect_of(request).state == EffectState.ACCEPTED
    return request


def effect_of(request: RefundRequest) -> SideEffect:
    return SideEffect.objects.get(run_id=request.run_id, effect="payments.refund")


def run_of(request: RefundRequest) -> WorkflowRun:
    return WorkflowRun.objects.get(pk=run_id_of(request))


def in_browser(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def end_of(request: RefundRequest) -> tuple[str, str, str]:
    """How run, effect and request ended."""
    request.refresh_from_db()
    return str(run_of(request).state), str(effect_of(request).state), request.state


def refund_id(sandbox: RunningSandbox) -> str:
    return str(sandbox.books().refunds[0]["id"])


def verdicts() -> dict[str, list[str]]:
    """Type of event -> what became of each."""
    found: dict[str, list[str]] = {}
    for kind, verdict in ProviderEvent.objects.order_by("arrived_at", "id").values_list("kind", "verdict"):
        found.setdefault(kind, []).append(verdict)
    return found


def test_while_a_refund_is_pending_nobody_is_told_done_and_its_event_completes_it(
    world: World, sandbox: RunningSandbox, charge: Charge, agent: User
) -> None:
    """R17 (a)."""
    request = ask_pending(world, sandbox, charge, agent)
    assert (mail.outbox, end_of(request)) == ([], ("WAITING", "ACCEPTED", "PENDING"))

    sandbox.settle(refund_id(sandbox), "succeeded")
    sandbox.wait_until_told()
    world.run_until_idle()

    assert end_of(request) == ("SUCCEEDED", "CONFIRMED", "REFUNDED")
    assert [sent.subject for sent in mail.outbox] == ["Your refund for order R-1"]
    assert len(sandbox.books().refund_acts) == 1
    assert verdicts() == {
        "refund.created": ["known"],
        "charge.refunded": ["about no effect"],
        "charge.refund.updated": ["settled"],
        "refund.updated": ["known"],
    }


def test_a_pending_refund_that_fails_later_is_not_told_as_done_and_an_operator_is_told(
    world: World, sandbox: RunningSandbox, charge: Charge, agent: User
) -> None:
    """R17 (b)."""
    request = ask_pending(world, sandbox, charge, agent)

    sandbox.settle(refund_id(sandbox), "failed", failure_reason="expired_or_canceled_card")
    sandbox.wait_until_told()
    world.run_until_idle()

    assert end_of(request) == ("FAILED", "REJECTED", "FAILED")
    assert "expired_or_canceled_card" in run_of(request).alert
    assert "refunded" not in mail.outbox[0].body.lower()
    assert verdicts()["charge.refund.updated"] == ["settled"]


def test_a_refund_that_stays_pending_for_ten_days_becomes_a_person_s(
    world: World, sandbox: RunningSandbox, charge: Charge, agent: User
) -> None:
    """R17 (c): before that nobody is bothered, and nobody is told "done"."""
    request = ask_pending(world, sandbox, charge, agent)
    accepted_at = effect_of(request).accepted_at
    assert accepted_at is not None

    world.clock.move_to(accepted_at + timedelta(days=9, hours=23))
    world.run_until_idle()
    assert not StepRun.objects.filter(run_id=request.run_id, needs_person=True).exists()
    world.clock.move_to(accepted_at + timedelta(days=10, hours=1))
    world.run_until_idle()

    assert StepRun.objects.get(run_id=request.run_id, name="pay").needs_person
    assert "accepted and is not done after 10 days" in run_of(request).alert
    assert mail.outbox == []


def test_a_refund_that_fails_a_week_after_its_end_is_reversed_in_the_ledger_and_a_person_is_told(
    world: World, sandbox: RunningSandbox, charge: Charge, agent: User
) -> None:
    """R17 (d)."""
    request = ask(charge, agent)
    world.run_until_idle()
    sandbox.wait_until_told()
    assert end_of(request) == ("SUCCEEDED", "CONFIRMED", "REFUNDED")
    sandbox.advance_clock(7 * 86_400)
    world.clock.move_to(world.clock.now() + timedelta(days=7))

    sandbox.settle(refund_id(sandbox), "failed", failure_reason="lost_or_stolen_card")
    sandbox.wait_until_told()

    assert end_of(request) == ("SUCCEEDED", "REVERSED", "REFUNDED")
    assert "taken it back: lost_or_stolen_card" in run_of(request).alert
    page = in_browser(agent).get("/orders/R-1/").content.decode()
    assert "the payment provider has taken that back since" in page
    assert "taken it back: lost_or_stolen_card" in page
    assert sorted(verdicts()["charge.refund.updated"] + verdicts()["refund.failed"]) == ["known", "reversed"]
    sandbox.advance_clock(-7 * 86_400)


@pytest.mark.parametrize("kind", ["wrong_amount", "wrong_currency", "wrong_charge"])
def test_an_event_about_other_money_settles_nothing_and_is_loud(
    world: World, sandbox: RunningSandbox, charge: Charge, agent: User, kind: str
) -> None:
    """P5: the right event that comes besides settles it all the same."""
    request = ask_pending(world, sandbox, charge, agent)
    sandbox.event_fault(kind, type="charge.refund.updated")

    sandbox.settle(refund_id(sandbox), "succeeded")
    sandbox.wait_until_told()
    world.run_until_idle()

    assert verdicts()["charge.refund.updated"] == ["contradiction"]
    assert verdicts()["refund.updated"] == ["settled"]
    assert "does not fit what was asked" in effect_of(request).contradiction
    assert end_of(request) == ("SUCCEEDED", "CONFIRMED", "REFUNDED")


def test_events_doubled_late_and_out_of_order_are_harmless(
    world: World, sandbox: RunningSandbox, charge: Charge, agent: User
) -> None:
    """R20: 'succeeded' before 'created', each of them twice at once."""
    sandbox.event_fault("out_of_order", type="refund.created")
    sandbox.event_fault("double", type="charge.refund.updated")
    sandbox.event_fault("late", type="refund.updated", seconds=0.3)
    sandbox.event_fault("lost", type="charge.refunded")
    request = ask_pending(world, sandbox, charge, agent)

    sandbox.settle(refund_id(sandbox), "succeeded")
    sandbox.wait_until_told()
    world.run_until_idle()

    assert end_of(request) == ("SUCCEEDED", "CONFIRMED", "REFUNDED")
    assert verdicts() == {
        "charge.refund.updated": ["settled"],
        "refund.created": ["older"],
        "refund.updated": ["known"],
    }
    assert ProviderEvent.objects.get(kind="charge.refund.updated").copies == 2
    assert len(mail.outbox) == 1


def test_a_forged_event_leaves_no_trace_and_the_true_one_counts(
    world: World, sandbox: RunningSandbox, charge: Charge, agent: User, caplog: pytest.LogCaptureFixture
) -> None:
    """P14."""
    request = ask_pending(world, sandbox, charge, agent)
    before = ProviderEvent.objects.count()
    sandbox.event_fault("forged", type="charge.refund.updated")
    with caplog.at_level(logging.WARNING):
        sandbox.settle(refund_id(sandbox), "succeeded")
        sandbox.wait_until_told()
        world.run_until_idle()

    assert "refused with 400" in caplog.text
    assert SECRET not in caplog.text
    assert ProviderEvent.objects.count() == before + 2
    assert end_of(request)[0] == RunState.SUCCEEDED


def test_the_provider_sends_again_what_was_not_taken(
    world: World, sandbox: RunningSandbox, charge: Charge, agent: User, settings: LazySettings
) -> None:
    """While no secret is set the door answers 503; nothing is lost."""
    request = ask_pending(world, sandbox, charge, agent)
    settings.PAYMENTS_WEBHOOK_SECRETS = []
    sandbox.settle(refund_id(sandbox), "succeeded")
    waited = [one for one in sandbox.events() if one["type"] == "charge.refund.updated"]
    assert waited[0]["delivered"] is None
    settings.PAYMENTS_WEBHOOK_SECRETS = ["whsec_new", SECRET]
    sandbox.wait_until_told()
    world.run_until_idle()

    assert end_of(request)[0] == RunState.SUCCEEDED
