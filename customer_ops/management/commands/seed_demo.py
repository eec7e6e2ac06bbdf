"""`manage.py seed_demo`: people, customers, orders and charges to try things with.

Charges are made at the payment provider that PAYMENTS_URL names, each under a key of its own, so running it again makes
nothing twice: neither here nor there. It starts no workflow and changes no row that is there already, passwords apart.
"""

from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from customer_ops.gateways.payments import create_charge
from customer_ops.models import Charge, Customer, Order, Ticket
from customer_ops.policies import FINANCE
from durableflows import Money, StepFailure

CUSTOMERS = (
    *("Ada Brown", "Bram de Vries", "Chiyo Tanaka", "Daniel Okoye", "Elena Rossi", "Farid Haddad"),
    *("Grace Kim", "Hugo Martin", "Ines Silva", "Jonas Weber", "Kavya Rao", "Liam O’Connor"),
)

# One order a line of amounts; customers take turns.
TOTALS = (
    *("USD 12.00", "USD 18.50", "EUR 49.90", "USD 35.00", "JPY 5800", "USD 64.20", "USD 79.99", "USD 95.00"),
    *("EUR 120.00", "USD 140.00", "USD 180.00", "USD 219.00", "JPY 60000", "USD 260.00", "USD 310.00", "USD 385.50"),
    *("EUR 499.00", "USD 450.00", "USD 499.99", "USD 500.00", "USD 640.00", "USD 875.00", "USD 1200.00"),
    *("USD 1750.00", "USD 2400.00"),
)

TICKETS = (
    ("The lamp came broken", "One of two lamps arrived with a broken shade. I would like my money back for that one."),
    ("Charged twice?", "My bank shows two payments for one order. Please look into it."),
    ("Sent back last week", "I returned the chair on Monday. When will I see my money?"),
)

VIEWS = tuple(f"view_{model}" for model in ("customer", "order", "charge", "refundrequest", "ticket", "mail"))
ENGINE_VIEWS = tuple(
    f"view_{model}" for model in ("workflowrun", "steprun", "sideeffect", "approvalrequest", "runevent")
)

# Name -> (is staff, permissions as (app, codename)).
PEOPLE: dict[str, tuple[bool, tuple[tuple[str, str], ...]]] = {
    "agent": (False, (("customer_ops", "request_refund"),)),
    "manager": (
        True,
        (
            ("customer_ops", "approve_refund"),
            *(("customer_ops", name) for name in VIEWS),
            *(("durableflows", name) for name in ENGINE_VIEWS),
        ),
    ),
    "director": (
        True,
        (
            ("customer_ops", "approve_refund"),
            ("customer_ops", "approve_any_refund"),
            ("durableflows", "operate_run"),
            *(("customer_ops", name) for name in VIEWS),
            *(("durableflows", name) for name in ENGINE_VIEWS),
        ),
    ),
}


OF_FINANCE = ("director", "admin")


class Command(BaseCommand):
    """Fill an empty desk."""

    help = "Makes people, customers, orders and charges to try things with. Running it again changes nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--password", required=True, help="of agent, manager, director and admin")
        parser.add_argument(
            "--without-payments", action="store_true", help="make up the charges' ids; no provider is asked"
        )

    def handle(self, *, password: str, without_payments: bool, **options: Any) -> None:
        if len(password) < 8:
            raise CommandError("give a password of at least 8 letters")
        for name in (*PEOPLE, "admin"):
            _make_person(name, password)
        self.stdout.write(f"people: {', '.join((*PEOPLE, 'admin'))}")
        Group.objects.get_or_create(name=FINANCE)[0].user_set.set(User.objects.filter(username__in=OF_FINANCE))
        customers = [_make_customer(name) for name in CUSTOMERS]
        self.stdout.write(f"customers: {len(customers)}")
        provider = _made_up if without_payments else _charge_at_provider
        for order in _make_orders(customers):
            self.stdout.write(f"order {order.number}: {_charge(order, provider).amount.display}")
        for customer, (subject, body) in zip(customers, TICKETS, strict=False):
            Ticket.objects.get_or_create(customer=customer, subject=subject, defaults={"body": body})
        self.stdout.write(f"tickets: {len(TICKETS)}")


def _charge(order: Order, provider: Callable[[Order], str]) -> Charge:
    charge = order.charges.first()
    if charge is None:
        charge = Charge(order=order, provider_id=provider(order), captured_at=order.placed_at)
        charge.amount = order.total
        charge.save()
    return charge


def _charge_at_provider(order: Order) -> str:
    # The key is stable: a run that was broken off between the provider and our row finds the same charge again.
    try:
        return create_charge(key=f"seed-{order.number}", amount=order.total, description=f"Order {order.number}").id
    except StepFailure as error:
        raise CommandError(f"order {order.number} cannot be charged: {error}") from None


def _made_up(order: Order) -> str:
    return f"ch_made_up_{order.number}"


def _make_person(name: str, password: str) -> None:
    is_staff, permissions = PEOPLE.get(name, (True, ()))
    user, _is_new = User.objects.get_or_create(username=name, defaults={"email": f"{name}@example.com"})
    user.is_staff, user.is_superuser = is_staff, name not in PEOPLE
    if not user.check_password(password):  # a new hash would log everybody out
        user.set_password(password)
    user.save()
    user.user_permissions.set(
        [Permission.objects.get(content_type__app_label=app, codename=codename) for app, codename in permissions]
    )


def _make_customer(name: str) -> Customer:
    email = f"{name.split(maxsplit=1)[0].lower()}@example.com"
    return Customer.objects.get_or_create(email=email, defaults={"name": name})[0]


def _make_orders(customers: list[Customer]) -> Iterator[Order]:
    now = timezone.now()
    for index, text in enumerate(TOTALS):
        number = f"R-{1001 + index}"
        order = Order.objects.filter(number=number).first()
        if order is None:
            currency, _space, amount = text.partition(" ")
            order = Order(number=number, customer=customers[index % len(customers)])
            order.placed_at = now - timedelta(days=len(TOTALS) - index, hours=index % 7)
            order.total = Money.parse(amount, currency)
            order.save()
        yield order
