"""Rows of the support desk for tests: the least that is legal, the rest filled in."""

import itertools
import uuid
from datetime import timedelta

from django.contrib.auth.models import Permission, User
from django.utils import timezone

from customer_ops.models import Charge, Customer, Order, RefundRequest, RefundState
from durableflows import Money

PASSWORD = "a good password"

_numbers = itertools.count(1)


def usd(text: str) -> Money:
    """Dollars."""
    return Money.parse(text, "USD")


def make_user(*codenames: str, name: str = "", is_superuser: bool = False) -> User:
    """A user with permissions of customer_ops."""
    name = name or f"user-{next(_numbers)}"
    user = User.objects.create_user(name, password=PASSWORD, is_superuser=is_superuser)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="customer_ops", codename__in=codenames))
    return user


def make_agent() -> User:
    """A user who may ask for refunds."""
    return make_user("request_refund")


def make_order(total: Money | None = None, *, number: str = "", customer: str = "Ada Brown") -> Order:
    """An order of one customer."""
    index = next(_numbers)
    order = Order(
        number=number or f"T-{index}",
        customer=Customer.objects.create(name=customer, email=f"customer-{index}@example.com"),
    )
    order.total = total or usd("100.00")
    order.save()
    return order


def make_charge(amount: Money | None = None, *, order: Order | None = None, provider_id: str = "") -> Charge:
    """A charge of 100 dollars, if nothing else is said."""
    amount = amount or usd("100.00")
    charge = Charge(order=order or make_order(amount), provider_id=provider_id or f"ch_{next(_numbers)}")
    charge.amount = amount
    charge.save()
    return charge


def run_id_of(request: RefundRequest) -> uuid.UUID:
    """The id of a request's run, which was started."""
    assert request.run_id is not None
    return request.run_id


def make_request(
    amount: Money,
    *,
    charge: Charge | None = None,
    state: RefundState = RefundState.PENDING,
    hours_ago: float = 0,
    by: User | None = None,
) -> RefundRequest:
    """A refund request without a run."""
    request = RefundRequest(
        charge=charge or make_charge(amount),
        reason="broken",
        state=state,
        form_token=uuid.uuid4(),
        requested_by=by,
        requested_by_name="somebody",
        refund_id="re_1" if state == RefundState.REFUNDED else "",
        created_at=timezone.now() - timedelta(hours=hours_ago),
    )
    request.amount = amount
    request.save()
    return request
