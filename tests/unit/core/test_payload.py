"""Payloads: one canonical form, digests, limits, what PostgreSQL stores, what is masked."""

import hashlib
import hmac
import json
from decimal import Decimal
from enum import StrEnum

import pytest

from durableflows import InvalidState
from durableflows.core.payload import (
    JSON,
    canonical,
    check_size,
    keyed_digest,
    parsed,
    redact,
    same,
    sha256,
    storable,
    unstorable_in,
)
from durableflows.core.secrecy import find_named_secret


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (9007199254740993, "9007199254740993"),
        ({"b": 1, "a": [1, {"d": 1, "c": "é"}]}, '{"a":[1,{"c":"é","d":1}],"b":1}'),
        ("😀 \\u0000", '"😀 \\\\u0000"'),
        ("\0", '"\\u0000"'),
        (0.1, "0.1"),
        (1.0, "1"),  # what jsonb makes of numbers, so that the digest of what was read is that of what was written
        (-0.0, "0"),
        (1e16, "10000000000000000"),
        (1.5e22, "15000000000000000000000"),
        (1e-7, "1e-07"),
    ],
)
def test_canonical(value: object, text: str) -> None:
    assert canonical(value) == text.encode()


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (float("nan"), "nan"),
        ({"a": [float("inf")]}, r"a\[0\]: inf"),
        ({1: "a"}, "keys are text"),
        ({"a": {Colour.RED: 1}}, "a: key"),
        ({"a": (1, 2)}, "a: tuple"),
        ({"a": {1}}, "a: set"),
        (Decimal(1), "Decimal"),
        (b"x", "bytes"),
        (Colour.RED, "Colour"),
        ("\ud800", "surrogate"),
    ],
)
def test_canonical_refuses_what_is_not_json(value: object, where: str) -> None:
    with pytest.raises(InvalidState, match=where):
        canonical(value)


def test_order_of_keys_does_not_change_the_digest() -> None:
    assert sha256({"a": 1, "b": 2}) == sha256({"b": 2, "a": 1}) == hashlib.sha256(b'{"a":1,"b":2}').hexdigest()
    assert sha256({"a": 1}) != sha256({"a": "1"})


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (0, False), (0.0, False), ({"a": [1]}, {"a": [True]}), ([{}, 0], [{}, False])]
)
def test_a_truth_value_is_no_number(one: JSON, other: JSON) -> None:
    assert one == other
    assert not same(one, other)
    assert not same(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (True, True), (None, None), ({"a": 1, "b": [2.5]}, {"b": [2.5], "a": 1}), (10**16, 1e16)],
)
def test_the_same_value_has_one_canonical_form(one: JSON, other: JSON) -> None:
    assert same(one, other)
    assert canonical(one) == canonical(other)


def test_keyed_digest_needs_the_key() -> None:
    """S2.26."""
    assert keyed_digest({"a": 1}, b"k") == hmac.new(b"k", b'{"a":1}', hashlib.sha256).hexdigest()
    assert keyed_digest({"a": 1}, b"k") != keyed_digest({"a": 1}, b"other")


def test_what_is_sent_is_read_as_json() -> None:
    assert parsed('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
    assert canonical(parsed("[" * 100 + "]" * 100))


@pytest.mark.parametrize("text", ["", "{", "[" * 101 + "]" * 101, "[" * 500 + "]" * 500, "[" * 200_000])
def test_what_is_no_json_or_nested_beyond_all_sense_is_refused_the_same_way(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|nested"):
        parsed(text)


def test_size_is_counted_in_bytes() -> None:
    check_size("é", 4, "state")
    with pytest.raises(InvalidState, match="state is 4 bytes, the limit is 3: store it as an artifact"):
        check_size("é", 3, "state")


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("a\0b", "a⟦U+0000⟧b"),
        ("a\ud83db", "a⟦U+D83D⟧b"),
        ("literal \\u0000 stays", "literal \\u0000 stays"),
        ("😀 é \x01", "😀 é \x01"),
        ({"k\0": ["\0", 1, None, 2.5, True]}, {"k⟦U+0000⟧": ["⟦U+0000⟧", 1, None, 2.5, True]}),
    ],
)
def test_storable_marks_what_postgresql_refuses(value: JSON, stored: object) -> None:
    """R30."""
    assert storable(value) == stored
    json.dumps(storable(value), ensure_ascii=False).encode("utf-8")


def test_unstorable_is_named() -> None:
    assert (unstorable_in("fine 😀"), unstorable_in("a\0"), unstorable_in("\udfff")) == (None, "U+0000", "U+DFFF")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"password": "SECRET3"}, {"password": "[redacted]"}),
        ({"userPassword": 1234, "x": 1}, {"userPassword": "[redacted]", "x": 1}),
        (
            {"API-Key": "S", "api_key": "S", "apikey": "S"},
            dict.fromkeys(["API-Key", "api_key", "apikey"], "[redacted]"),
        ),
        ({"access_token": {"deep": "S"}}, {"access_token": "[redacted]"}),
        ({"token": 17, "max_tokens": 100}, {"token": 17, "max_tokens": 100}),
        ({"headers": [{"Authorization": "Bearer S"}]}, {"headers": [{"Authorization": "[redacted]"}]}),
        ({"card_number": "4242"}, {"card_number": "[redacted]"}),
        ({"idempotency_key": "df_1", "key": "refund:5"}, {"idempotency_key": "df_1", "key": "refund:5"}),
        ("https://h/v1?api_key=SECRET1&id=re_1: 402", "https://h/v1?api_key=[redacted]&id=re_1: 402"),
        ("https://h/v1?key=SECRET1#f", "https://h/v1?key=[redacted]#f"),
        ("business key=refund:5 exists", "business key=refund:5 exists"),
        ("Authorization: Bearer SECRET2 sent", "Authorization: [redacted] sent"),
        ("bearer abcdef123456", "bearer [redacted]"),
        ("connect(password='SECRET3', host='h')", "connect(password=[redacted], host='h')"),
        ('{"api_key": "SECRET", "id": 1}', '{"api_key": [redacted], "id": 1}'),
        ("postgres://user:pw@host/db", "postgres://[redacted]@host/db"),
        ("sk_test_local and whsec_abcdef", "[redacted] and [redacted]"),
        ("card 4242 4242 4242 4242.", "card [card …4242]."),
        ("card 4111-1111-1111-1111", "card [card …1111]"),
        ("order 4242424242424241", "order 4242424242424241"),
        ("eyJhbGciOi.eyJzdWIi.sig", "[redacted]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- x", "[redacted] x"),
        ("nothing secret, 10.00 USD", "nothing secret, 10.00 USD"),
        ([1, None, True, 2.5], [1, None, True, 2.5]),
        ("[('api_key', 'SECRET1'), ('page', '2')]", "[('api_key', [redacted]), ('page', '2')]"),
        ("{b'x-api-key': b'SECRET1'}", "{b'x-api-key': [redacted]}"),
        ('password = "SECRET3" # typed', "password = [redacted] # typed"),
        ("Illegal header value b'SECRET2\\n'", "Illegal header value [redacted]"),
    ],
)
def test_redact(value: JSON, shown: object) -> None:
    """R38, P14: secrets go, the rest of the message stays useful."""
    assert redact(value) == shown


@pytest.mark.parametrize(
    "text",
    [
        "https://h/v1?api_key=SECRET1&id=1 {'Authorization': 'Bearer SECRET2'}",
        "password = 'x', [('token', 'y')], header value: 'z', card 4242 4242 4242 4242, https://u:p@h/",
    ],
)
def test_what_is_masked_twice_is_as_it_was_masked_once(text: str) -> None:
    """A text passes many doors: an error's, a row's, a log line's, a page's."""
    once = redact(text)

    assert redact(once) == once


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({"password": "x"}, "password"),
        ({"login": {"apiKey": "x"}}, "login.apiKey"),
        ({"cards": [{"card_number": "4242"}]}, "cards[0].card_number"),
        ({"client_secret": "x"}, "client_secret"),
        ({"password": "", "password_changed": True, "password_hint": "the dog", "api_key_id": "k1"}, ""),
        ({"password": {"name": "payments/password"}, "token": "next page", "secret": "of success"}, ""),
    ],
)
def test_texts_that_stand_under_the_name_of_a_secret_are_found(data: JSON, where: str) -> None:
    """R38."""
    assert find_named_secret(data) == where
