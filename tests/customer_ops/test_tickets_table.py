"""Each fault of the help desk: class, ledger, sends, lookups, end and books, by the whole engine (R13, R15).

As for payments, once with the client token and once by the search alone, which lags.
"""

from typing import Any

import pytest
from django.conf import LazySettings

from customer_ops.effects import open_ticket
from customer_ops.models import Ticket
from customer_ops.sandbox.control import RunningSandbox
from durableflows.testing import virtual
from tests.support.adapters import DONE_AND_LOST, LOST, NOT_FOUND, TOOK, Case, Seen, declared, line, play
from tests.support.desk import make_request, usd
from tests.support.payments import KEY

pytestmark = pytest.mark.django_db


SILENT = ("timeout_before", "timeout_after", "trickle")


WITH_TOKEN: list[Case] = [
    ("refuse", {}, line(*LOST, sends=2, books=1)),
    ("cut_before", {}, line(*LOST, sends=2, books=1)),
    ("timeout_before", {}, line(*LOST, sends=2, books=1)),
    ("rate_limited", {"retry_after": "7"}, line("Transient", "PLANNED", "CONFIRMED", sends=2, books=1)),
    ("error_before", {"status": 503}, line(*LOST, sends=2, books=1)),
    ("unauthorized", {}, line("CredentialsRefused", "PLANNED", "PLANNED", sends=1, books=0)),
    ("forbidden", {}, line("Permanent", "REJECTED", "REJECTED", sends=1, books=0)),
    ("key_in_use", {}, line("KeyInUse", "UNKNOWN", "CONFIRMED", sends=2, books=1)),
    ("late", {"seconds": 0.8}, line(*LOST, sends=2, books=1)),
    ("slow", {"seconds": 0.01}, line(*TOOK, sends=1, books=1)),
    ("slow", {"seconds": 0.8}, line(*LOST, sends=2, books=1)),
    *DONE_AND_LOST,
    ("error_before", {"stored": True}, line(*NOT_FOUND, sends=4, lookups=1, books=0)),
    ("error_after", {}, line(*LOST, sends=4, lookups=1, books=1)),
]

BY_SEARCH: list[Case] = [
    ("cut_before", {}, line(*NOT_FOUND, sends=1, lookups=1, books=0)),
    ("error_before", {}, line(*NOT_FOUND, sends=1, lookups=1, books=0)),
    ("late", {"seconds": 0.8}, line(*LOST, sends=1, lookups=1, books=1)),
    ("cut_after", {}, line(*LOST, sends=1, lookups=1, books=1)),
    ("timeout_after", {}, line(*LOST, sends=1, lookups=1, books=1)),
    ("half_answer", {}, line(*LOST, sends=1, lookups=1, books=1)),
    ("error_after", {}, line(*LOST, sends=1, lookups=1, books=1)),
]


@pytest.fixture(autouse=True)
def account(settings: LazySettings, sandbox: RunningSandbox) -> None:
    settings.TICKETS_URL, settings.TICKETS_KEY = sandbox.url, KEY


def seen(sandbox: RunningSandbox, fault: str, options: dict[str, Any], **other: Any) -> Seen:
    """What one ticket goes through that meets this fault once."""
    sandbox.fault(fault, path="/tickets", **options)
    used = declared(open_ticket, is_silent=fault in SILENT or options.get("seconds") == 0.8, **other)
    with virtual() as world:
        return play(
            world,
            used,
            {"about": "untold", "request_id": make_request(usd("10.00")).pk},
            books=lambda key: sandbox.books().tickets_of(key),
            between=sandbox.wait_until_done,
        )


@pytest.mark.parametrize(("fault", "options", "expected"), WITH_TOKEN, ids=str)
def test_a_ticket_under_a_client_token(
    sandbox: RunningSandbox, fault: str, options: dict[str, Any], expected: Seen
) -> None:
    """S3.6, S3.9, R13: and the desk's list calls it as the help desk does, once the ledger knows it."""
    assert seen(sandbox, fault, options) == expected

    known = [ticket["id"] for ticket in sandbox.books().tickets] if expected.end == "CONFIRMED" else [""]
    assert list(Ticket.objects.values_list("provider_id", flat=True)) == known


@pytest.mark.parametrize(("fault", "options", "expected"), BY_SEARCH, ids=str)
def test_a_ticket_that_only_the_search_can_find(
    sandbox: RunningSandbox, fault: str, options: dict[str, Any], expected: Seen
) -> None:
    assert seen(sandbox, fault, options, key_window=None) == expected


def test_a_search_that_is_further_behind_than_we_wait_finds_nothing_absent(sandbox: RunningSandbox) -> None:
    """S3.9: "not found" of an index that lags says nothing; in the end a person looks."""
    sandbox.search_lag(3600)

    went = seen(sandbox, "cut_after", {}, key_window=None)

    assert (went.end, went.run, went.sends, went.books) == ("UNKNOWN", "NEEDS_RECONCILIATION", 1, 1)
    assert went.lookups == 10


def test_a_help_desk_that_is_closed_is_asked_again(sandbox: RunningSandbox) -> None:
    sandbox.stop_listening()
    with virtual() as world:
        went = play(
            world,
            declared(open_ticket, is_silent=False),
            {"about": "unpaid", "request_id": make_request(usd("10.00")).pk},
            books=lambda key: sandbox.books().tickets_of(key),
            between=sandbox.listen,
        )

    assert went == line("NeverSent", "PLANNED", "CONFIRMED", sends=2, books=1)


def test_without_a_help_desk_the_desks_own_list_is_one(settings: LazySettings) -> None:
    settings.TICKETS_URL = ""
    with virtual() as world:
        went = play(
            world,
            open_ticket,
            {"about": "unpaid", "request_id": make_request(usd("10.00")).pk},
            books=lambda key: Ticket.objects.filter(token=key).count(),
        )

    assert went == line(*TOOK, sends=1, books=1)
