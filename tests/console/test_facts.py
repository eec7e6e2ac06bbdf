"""Stored facts are shown as people read them, and never as markup."""

import pytest
from django.template import Context, Template

from durableflows.templatetags.durableflows import fact, label


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"amount_minor": 60000, "currency": "USD"}, "USD 600.00"),
        ({"amount_minor": -5, "currency": "JPY"}, "JPY -5"),
        ({"amount_minor": True, "currency": "USD"}, "amount_minor: yes, currency: USD"),
        ({"amount_minor": 1, "currency": ["USD"]}, "amount_minor: 1, currency: USD"),
        ({"amount_minor": 1, "currency": "moon"}, "amount_minor: 1, currency: moon"),
        ({"a": None, "b": [1, {"amount_minor": 1, "currency": "USD"}]}, "a: –, b: 1, USD 0.01"),
        (None, "–"),
        ("", "–"),
        ([], "–"),
        ({}, "–"),
        (0, "0"),
        (False, "no"),
        ("a, b", "a, b"),
    ],
)
def test_a_fact_is_shown_in_words(value: object, shown: str):
    assert fact(value) == shown


def test_a_fact_is_text_and_not_markup():
    page = Template("{% load durableflows %}{{ value|fact }}{{ name|label }}")
    shown = page.render(Context({"value": {"<b>": ["<i>"]}, "name": "<u>"}))

    assert shown == "&lt;b&gt;: &lt;i&gt;&lt;u&gt;"


def test_a_name_is_shown_as_words():
    assert label("order_number") == "Order number"
