"""The help desk's gateway on its own: a ticket for each client token, and a lookup that never guesses."""

import json

import pytest

from customer_ops.gateways.tickets import TicketReceipt, TicketsClient
from customer_ops.sandbox.control import RunningSandbox
from durableflows import (
    CannotTell,
    DurableflowsError,
    Found,
    KeyConflict,
    NeedsHuman,
    NeverSent,
    NotFound,
    Permanent,
    UnknownOutcome,
)
from tests.support.payments import KEY, all_text, call
from tests.support.raw_server import http, raw_server

WORDS = {"requester": "ada@example.com", "subject": "Delayed", "body": "Please call Ada.\nHer lamp came broken: ☹"}


@pytest.fixture
def desk(sandbox: RunningSandbox) -> TicketsClient:
    """Our account at the help desk."""
    return TicketsClient(sandbox.url, KEY)


def test_a_token_opens_one_ticket_with_our_words(sandbox: RunningSandbox, desk: TicketsClient) -> None:
    first, second = desk.create(call(), **WORDS), desk.create(call(), **WORDS)
    other = desk.create(call("df_2"), **WORDS)

    assert first == second != other
    tickets = sandbox.books().tickets
    assert [ticket["external_id"] for ticket in tickets] == ["df_1", "df_2"]
    assert {name: tickets[0][name] for name in WORDS} == WORDS


def test_the_token_with_other_words_is_a_conflict(desk: TicketsClient) -> None:
    desk.create(call(), **WORDS)

    with pytest.raises(KeyConflict):
        desk.create(call(), **{**WORDS, "body": "another"})


@pytest.mark.parametrize("wrong", [{"subject": "x" * 201}, {"body": ""}])
def test_words_that_do_not_fit_are_refused_for_good(desk: TicketsClient, wrong: dict[str, str]) -> None:
    with pytest.raises(Permanent):
        desk.create(call(), **{**WORDS, **wrong})


def test_a_search_finds_exactly_the_ticket_of_the_token(sandbox: RunningSandbox, desk: TicketsClient) -> None:
    receipt = desk.create(call(), **WORDS)
    desk.create(call("df_2"), **WORDS)

    assert desk.find(call(), most_lag_seconds=60) == Found(receipt)
    assert desk.find(call("df_3"), most_lag_seconds=60) == NotFound()


def test_a_search_that_is_behind_cannot_tell_what_is_not_there(sandbox: RunningSandbox, desk: TicketsClient) -> None:
    desk.create(call(), **WORDS)
    sandbox.search_lag(90)

    behind = desk.find(call(), most_lag_seconds=60)
    sandbox.advance_clock(91)
    seen = desk.find(call(), most_lag_seconds=60)
    missed = desk.find(call("df_2"), most_lag_seconds=60)

    assert isinstance(behind, CannotTell)
    assert "90 s behind" in behind.reason
    assert isinstance(seen, Found)
    assert isinstance(missed, CannotTell)


def test_two_tickets_of_one_token_are_for_a_person(sandbox: RunningSandbox, desk: TicketsClient) -> None:
    desk.create(call(), **WORDS)
    sandbox.advance_clock(25 * 3600)  # the token is forgotten
    desk.create(call(), **WORDS)

    answer = desk.find(call(), most_lag_seconds=60)

    assert isinstance(answer, CannotTell)
    assert "2 carry this key" in answer.reason


@pytest.mark.parametrize("key", ["", "sk test", "sk_\u00e9", "a\nb"])
def test_a_key_that_is_none_needs_a_person(sandbox: RunningSandbox, key: str) -> None:
    with pytest.raises(NeedsHuman) as caught:
        TicketsClient(sandbox.url, key).create(call(), **WORDS)

    assert caught.value.details["code"] == "no_key"


def test_a_key_that_the_help_desk_does_not_know_needs_a_person(sandbox: RunningSandbox) -> None:
    wrong = "rk_wrong_0123456789"

    with pytest.raises(NeedsHuman) as caught:
        TicketsClient(sandbox.url, wrong).create(call(), **WORDS)

    assert wrong not in all_text(caught.value)


def test_too_late_is_never_sent(sandbox: RunningSandbox, desk: TicketsClient) -> None:
    with pytest.raises(NeverSent):
        desk.create(call(send_in_seconds=-1), **WORDS)

    assert sandbox.books().requests == []


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", '{"id": 7, "external_id": "df_1"}', json.dumps({"id": "tk_1", "external_id": "another"})],
)
def test_an_answer_that_is_not_about_our_ticket_is_doubt(body: str) -> None:
    with raw_server(http("201 Created", body)) as server, pytest.raises(UnknownOutcome) as caught:
        TicketsClient(server.url, KEY).create(call(), **WORDS)

    assert "Ada" not in all_text(caught.value)


def test_an_answer_may_have_more_fields_than_we_read() -> None:
    body = json.dumps({"id": "tk_1", "external_id": "df_1", "satisfaction": None, "tags": []})
    with raw_server(http("201 Created", body)) as server:
        assert TicketsClient(server.url, KEY).create(call(), **WORDS) == TicketReceipt(id="tk_1")


@pytest.mark.parametrize(
    ("status", "type_"),
    [
        ("422 Unprocessable", "invalid_request_error"),
        ("400 Bad Request", "idempotency_error"),
        ("409 Conflict", "invalid_request_error"),
        ("500 Internal Server Error", "api_error"),
    ],
)
def test_what_a_customer_wrote_does_not_come_back_in_an_error(status: str, type_: str) -> None:
    """P14: the help desk quotes what it refuses, and errors are stored and shown."""
    error = {"type": type_, "code": "ticket_already_open", "message": f"not taken: {WORDS['body']}"}
    with raw_server(http(status, json.dumps({"error": error}))) as server, pytest.raises(DurableflowsError) as caught:
        TicketsClient(server.url, KEY).create(call(), **WORDS)

    assert "lamp" not in all_text(caught.value)
    assert "answered" in str(caught.value)
