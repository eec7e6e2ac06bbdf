"""Stored facts are shown as people read them, and never as markup."""

from datetime import UTC, datetime

import pytest
from django.conf import LazySettings
from django.template import Context, Template
from django.utils import timezone

from durableflows.templatetags.durableflows import day, fact, label


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"amount_minor": 60000, "currency": "USD"}, "USD 600.00"),
        ({"amount_minor": 6_480_000, "currency": "EUR"}, "EUR 64,800.00"),
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


def test_a_moment_is_said_as_people_say_it_and_kept_exactly(settings: LazySettings):
    settings.TIME_ZONE = "Europe/Berlin"
    far, now = datetime(2024, 7, 1, 9, 30, tzinfo=UTC), timezone.now()

    assert day(far) == (
        '<time datetime="2024-07-01T09:30:00+00:00" title="2024-07-01 11:30:00 CEST">Mon 1 Jul 2024 11:30 CEST</time>'
    )
    assert f">today {timezone.localtime(now):%H:%M} " in day(now)
    assert day(None) == "–"
