"""The filters that show texts of others: nothing invisible is left, no markup, one full stop."""

import pytest
from django.template import Context, Template
from django.utils.html import format_html

from durableflows.templatetags.durableflows import full_stop, plainly


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        ("", ""),
        (7, "7"),
        ("Ada", "Ada"),
        ("a\u202eb", "a⟦U+202E⟧b"),
        ("a\x07b", "a⟦U+0007⟧b"),
        ("one\ntwo", "one\ntwo"),
        ("x" * 5000, "x" * 5000),
        ("\u202e" * 40, "⟦U+202E⟧" * 40),
        ("\U000e0001", "⟦U+E0001⟧"),
    ],
)
def test_what_would_be_obeyed_is_spelled_out(value: object, shown: str) -> None:
    assert plainly(value) == shown


def test_the_page_escapes_it() -> None:
    page = Template("{% load durableflows %}{{ text|plainly }}").render(Context({"text": "<b>\u202e</b>"}))

    assert page == "&lt;b&gt;⟦U+202E⟧&lt;/b&gt;"


def test_what_is_escaped_already_keeps_its_markup() -> None:
    shown = format_html("<b>{}</b>", "<\u202e>")

    page = Template("{% load durableflows %}{{ text|plainly }}").render(Context({"text": shown}))

    assert page == "<b>&lt;⟦U+202E⟧&gt;</b>"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("", ""),
        ("No scratch", "No scratch."),
        ("No scratch.", "No scratch."),
        ("No scratch. ", "No scratch."),
        ("Why?", "Why?"),
        ("No!", "No!"),
        ("cut off…", "cut off…"),
        ("he said “no.”", "he said “no.”"),
        ("it failed (429)", "it failed (429)."),
    ],
)
def test_a_sentence_has_one_full_stop(value: str, shown: str) -> None:
    assert full_stop(value) == shown


def test_a_full_stop_leaves_escaping_to_the_page() -> None:
    page = Template("{% load durableflows %}{{ text|plainly|full_stop }}").render(Context({"text": "<b>"}))

    assert page == "&lt;b&gt;."
