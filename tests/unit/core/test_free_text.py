"""What people write freely: secrets are masked, all else is kept letter for letter; nothing to see is no reason."""

import pytest

from durableflows import InvalidState
from durableflows.core.free_text import kept, kept_reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "  Zoë’s «mind» changed:\n\tsee ticket #4711, order 2026-11-29 & 5 %  ",
        "👩\u200d👩\u200d👧 \u05d0\u05d1 \u200f!",
        "password reset was asked for; the key is lost",
        "x" * 4000,
    ],
)
def test_what_is_no_secret_is_kept_letter_for_letter(text: str):
    assert kept(text, "the comment") == text


def test_what_looks_like_a_secret_is_masked_and_the_rest_stays():
    text = "paid with 4111 1111 1111 1111, password=hunter2, says Bob"
    assert kept_reason(text, "cancel") == "paid with [card …1111], password=[redacted], says Bob"


@pytest.mark.parametrize(
    "text", ["", "  \n\t", "\u200b\u200b", "\u2060\ufeff\u00ad", "\u00a0\u3000", "\u3164\u2800", "\u0301"]
)
def test_a_reason_of_which_nothing_is_seen_is_none(text: str):
    with pytest.raises(InvalidState, match="cancel needs a reason"):
        kept_reason(text, "cancel")


@pytest.mark.parametrize("text", ["x", ".", "好", "👍", "7", "\u200bok"])
def test_whatever_is_seen_is_a_reason(text: str):
    assert kept_reason(text, "cancel") == text


def test_what_cannot_be_stored_is_refused():
    with pytest.raises(InvalidState, match="the comment contains"):
        kept("a\x00", "the comment")
    with pytest.raises(InvalidState, match="4000"):
        kept("x" * 4001, "the comment")
