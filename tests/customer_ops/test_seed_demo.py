"""`manage.py seed_demo` fills an empty desk once, however often it is run."""

import io

import pytest
from django.conf import LazySettings
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from customer_ops.models import Charge, Customer, Order, Ticket
from customer_ops.sandbox.control import RunningSandbox
from durableflows.models import WorkflowRun
from tests.support.desk import PASSWORD
from tests.support.payments import KEY


def seed(**options: object) -> str:
    """Run the command; what it printed."""
    out = io.StringIO()
    call_command("seed_demo", password=PASSWORD, stdout=out, **options)
    return out.getvalue()


def test_a_desk_is_filled_once(db: None, settings: LazySettings, sandbox: RunningSandbox) -> None:
    settings.PAYMENTS_URL, settings.PAYMENTS_KEY = sandbox.url, KEY

    first = seed()
    counts = [model.objects.count() for model in (User, Customer, Order, Charge, Ticket, WorkflowRun)]
    second = seed()

    assert counts == [4, 12, 25, 25, 3, 0]
    assert counts == [model.objects.count() for model in (User, Customer, Order, Charge, Ticket, WorkflowRun)]
    assert first == second
    assert len(sandbox.books().charges) == 25
    assert {charge["id"] for charge in sandbox.books().charges} == set(
        Charge.objects.values_list("provider_id", flat=True)
    )


def test_a_seed_that_broke_off_before_our_row_charges_nobody_twice(
    db: None, settings: LazySettings, sandbox: RunningSandbox
) -> None:
    settings.PAYMENTS_URL, settings.PAYMENTS_KEY = sandbox.url, KEY
    seed()
    Charge.objects.filter(order__number__in=["R-1001", "R-1002"]).delete()

    seed()

    assert len(sandbox.books().charges) == Charge.objects.count() == 25


def test_people_have_their_rights_and_no_more(db: None) -> None:
    seed(without_payments=True)

    def has(name: str, permission: str) -> bool:
        return User.objects.get(username=name).has_perm(permission)

    assert {name for name in ("agent", "manager", "director") if has(name, "customer_ops.request_refund")} == {"agent"}
    assert not has("agent", "customer_ops.approve_refund")
    assert not has("manager", "customer_ops.approve_any_refund")
    assert has("director", "customer_ops.approve_any_refund")
    assert not has("manager", "customer_ops.change_customer")
    assert User.objects.get(username="admin").is_superuser
    finance = User.objects.filter(groups__name="finance").order_by("username")
    assert [one.username for one in finance] == ["admin", "director"]
    assert authenticate(username="agent", password=PASSWORD)


def test_a_payment_provider_that_is_away_is_said(db: None) -> None:
    with pytest.raises(CommandError, match="R-1001 cannot be charged"):
        seed()


def test_a_short_password_is_refused(db: None) -> None:
    with pytest.raises(CommandError):
        call_command("seed_demo", password="short")
