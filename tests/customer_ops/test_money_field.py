"""Money in the database: two exact columns, one attribute, or an error (R18)."""

import pytest
from django.core import serializers
from django.db import IntegrityError, models, transaction
from django.db.migrations.state import ModelState
from django.template import Context, Template
from django.test.utils import isolate_apps

from customer_ops.models import Charge
from durableflows import InvalidState, Money
from durableflows.fields import MoneyField
from tests.support.desk import make_charge, make_order


@pytest.mark.parametrize(
    "amount",
    [
        Money(5800, "JPY"),
        Money(1000, "USD"),
        Money(1234, "KWD"),
        Money(10, "USD") + Money(20, "USD"),
        Money(123456789, "USD"),
        Money(9007199254740993, "USD"),
        Money(2**63 - 1, "USD"),
    ],
    ids=str,
)
def test_an_amount_is_read_as_it_was_written(db: None, amount: Money) -> None:
    charge = make_charge(amount)

    stored = Charge.objects.get(pk=charge.pk)

    assert stored.amount == amount
    assert type(stored.amount.amount_minor) is int


def test_the_attribute_is_taken_by_the_constructor_and_by_create(db: None) -> None:
    order = make_order()

    charge = Charge.objects.create(order=order, provider_id="ch_x", amount=Money(5, "USD"))  # type: ignore[misc]

    assert Charge.objects.values_list("amount_minor", "amount_currency").get(pk=charge.pk) == (5, "USD")


@pytest.mark.parametrize("value", [10, 10.0, "10.00", None, {"amount_minor": 10, "currency": "USD"}])
def test_anything_but_money_is_refused_at_once(value: object) -> None:
    with pytest.raises(InvalidState, match=r"Charge\.amount"):
        Charge(amount=value)  # type: ignore[misc]


@isolate_apps("customer_ops")
def test_an_amount_may_be_missing_where_it_is_declared_so() -> None:
    class Offer(models.Model):  # noqa: DJ008 - nobody reads it
        price = MoneyField(null=True)

        class Meta:
            app_label = "customer_ops"

    offer = Offer()
    assert offer.price is None

    offer.price = Money(1, "USD")
    assert offer.price == Money(1, "USD")

    offer.price = None
    assert (offer.price_minor, offer.price_currency) == (None, None)  # type: ignore[attr-defined]


def test_half_an_amount_is_an_error_not_a_guess() -> None:
    with pytest.raises(InvalidState, match="needs both"):
        _ = Charge(amount_minor=10, amount_currency="").amount


@isolate_apps("customer_ops")
def test_migrations_name_two_plain_columns_in_their_place() -> None:
    class Offer(models.Model):  # noqa: DJ008 - nobody reads it
        before = models.IntegerField()
        price = MoneyField("price")
        after = models.IntegerField()

        class Meta:
            app_label = "customer_ops"

    fields = ModelState.from_model(Offer).fields

    assert list(fields) == ["id", "before", "price_minor", "price_currency", "after"]
    assert {fields[name].deconstruct()[1] for name in ("price_minor", "price_currency")} == {
        "django.db.models.BigIntegerField",
        "django.db.models.CharField",
    }


@isolate_apps("customer_ops")
def test_an_abstract_model_hands_its_amount_down() -> None:
    class Priced(models.Model):
        price = MoneyField()

        class Meta:
            abstract = True
            app_label = "customer_ops"

    class Offer(Priced):  # noqa: DJ008 - nobody reads it
        class Meta:
            app_label = "customer_ops"

    offer = Offer()
    offer.price = Money(7, "JPY")

    assert (offer.price_minor, offer.price_currency) == (7, "JPY")  # type: ignore[attr-defined]


def test_the_database_refuses_a_charge_of_nothing(db: None) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        make_charge(Money(0, "USD"))


def test_fixtures_keep_the_amount(db: None) -> None:
    charge = make_charge(Money(9007199254740993, "USD"))

    (loaded,) = serializers.deserialize("json", serializers.serialize("json", [charge]))

    assert isinstance(loaded.object, Charge)
    assert loaded.object.amount == charge.amount


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Money(123450, "USD"), "$1,234.50"),
        (Money(5800, "JPY"), "¥5,800"),
        (Money(1234, "KWD"), "KWD\u00a01.234"),
        ({"amount_minor": 1000, "currency": "USD"}, "$10.00"),
        (None, ""),
        ("<b>", "&lt;b&gt;"),
    ],
)
def test_pages_show_an_amount_in_its_own_currency(value: object, text: str) -> None:
    page = Template("{% load durableflows %}{{ value|money }}")

    assert page.render(Context({"value": value})) == text
