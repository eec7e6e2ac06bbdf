"""The adapters at services that we did not write: a Stripe-like provider that honours keys, and the same one without.

Where keys are ignored the lookup must save us, and does; the last test takes the lookup's part away, so that the others
are seen to prove something. The mail server that we did not write stands in `test_mail_table`.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.conf import LazySettings

from customer_ops.effects import open_ticket, refund_payment
from customer_ops.gateways.payments import PaymentsClient
from customer_ops.sandbox.control import RunningSandbox
from durableflows import Money
from durableflows.testing import virtual
from tests.support.adapters import Seen, declared, line, play
from tests.support.desk import make_request, usd
from tests.support.forgetful import Front, faithful, forgetful
from tests.support.payments import KEY, TEN, USD
from tests.support.stripe_mock import foreign_stripe

pytestmark = pytest.mark.django_db

BY_LOOKUP: dict[str, Any] = {"key_window": None}
"""What a project declares of a provider that knows no keys."""


@pytest.fixture(scope="module")
def foreign_url() -> Iterator[str]:
    with foreign_stripe() as url:
        yield url


@pytest.fixture
def front(foreign_url: str, settings: LazySettings) -> Iterator[Front]:
    """The foreign provider, without keys. Charges are made behind its back."""
    with forgetful(foreign_url) as front:
        settings.PAYMENTS_URL, settings.PAYMENTS_KEY = front.url, KEY
        yield front


def made_at(url: str, charge: str, key: str) -> int:
    """How many refunds the foreign provider has of this operation."""
    answer = httpx.get(f"{url}/v1/refunds", params={"charge": charge, "limit": 100}, auth=(KEY, ""), trust_env=False)
    return len([one for one in answer.json()["data"] if one["metadata"].get("durableflows_key") == key])


def refund(url: str, **other: Any) -> Seen:
    """What one refund goes through at the foreign provider."""
    charge = PaymentsClient(url, KEY).create_charge(key=str(uuid.uuid4()), amount=Money(5000, USD)).id
    used = declared(refund_payment, is_silent=False, **other)
    with virtual() as world:
        return play(world, used, {"charge_id": charge, "amount": TEN}, books=lambda key: made_at(url, charge, key))


def test_a_foreign_provider_takes_a_refund_and_knows_it_by_our_key(foreign_url: str, settings: LazySettings) -> None:
    settings.PAYMENTS_URL, settings.PAYMENTS_KEY = foreign_url, KEY

    assert refund(foreign_url) == line("receipt", "CONFIRMED", "CONFIRMED", sends=1, books=1)


def test_a_lost_answer_of_a_provider_with_keys_is_asked_for_again_under_the_same_key(
    foreign_url: str, settings: LazySettings
) -> None:
    with faithful(foreign_url) as front:
        settings.PAYMENTS_URL, settings.PAYMENTS_KEY = front.url, KEY
        front.lose_answers(1)

        assert refund(foreign_url) == line("UnknownOutcome", "UNKNOWN", "CONFIRMED", sends=2, books=1)


def test_a_lost_answer_of_a_provider_without_keys_is_found_by_lookup(foreign_url: str, front: Front) -> None:
    """S3.9, P5: one act at the provider, although it would have acted on each send."""
    front.lose_answers(1)

    went = refund(foreign_url, **BY_LOOKUP)

    assert went == line("UnknownOutcome", "UNKNOWN", "CONFIRMED", sends=1, lookups=1, books=1)
    assert front.keys_lost == 1


def test_a_help_desk_without_tokens_is_searched(sandbox: RunningSandbox, settings: LazySettings) -> None:
    with forgetful(sandbox.url) as front, virtual() as world:
        settings.TICKETS_URL, settings.TICKETS_KEY = front.url, KEY
        front.lose_answers(1)
        went = play(
            world,
            declared(open_ticket, is_silent=False, **BY_LOOKUP),
            {"about": "untold", "request_id": make_request(usd("10.00")).pk},
            books=lambda key: sandbox.books().tickets_of(key),
        )

    assert went == line("UnknownOutcome", "UNKNOWN", "CONFIRMED", sends=1, lookups=1, books=1)


def test_declared_to_know_keys_it_does_not_know_such_a_provider_pays_twice(foreign_url: str, front: Front) -> None:
    """What the declaration promises is believed. Said here so that nobody takes the tests above for granted."""
    front.lose_answers(1)

    assert refund(foreign_url).books == 2
