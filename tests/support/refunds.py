"""Orders, charges and people for tests in which real workers pay refunds at the sandbox."""

import uuid

from django.contrib.auth.models import Permission, User
from django.utils import timezone

from customer_ops import services
from customer_ops.gateways.payments import PaymentsClient
from customer_ops.models import Charge, Customer, Order, RefundRequest
from customer_ops.sandbox.control import RunningSandbox
from durableflows import Money

KEY = "sk_test_local"


def person(name: str, *permissions: str) -> User:
    """Somebody with these rights, read again so that they count."""
    user = User.objects.create_user(name)
    for permission in permissions:
        user.user_permissions.add(Permission.objects.get(codename=permission))
    return User.objects.get(pk=user.pk)


def make_charge(sandbox: RunningSandbox, name: str, amount: Money) -> Charge:
    """An order with one charge, here and at the provider."""
    made = PaymentsClient(sandbox.url, KEY).create_charge(key=f"charge-{name}", amount=amount)
    customer, _ = Customer.objects.get_or_create(email="ada@example.test", defaults={"name": "Ada"})
    order = Order(number=name, customer=customer, placed_at=timezone.now())
    order.total = amount
    order.save()
    charge = Charge(order=order, provider_id=made.id, captured_at=timezone.now())
    charge.amount = amount
    charge.save()
    return charge


def ask(charge: Charge, amount: Money, agent: User) -> RefundRequest:
    """Ask for a refund, as the order's page does."""
    return services.request_refund(charge.pk, amount, "a test", by=agent, form_token=uuid.uuid4())


def worker_environment(sandbox: RunningSandbox) -> dict[str, str]:
    """What workers need to pay at the sandbox, with times that a test can wait for."""
    return {
        "PAYMENTS_URL": sandbox.url,
        "PAYMENTS_KEY": KEY,
        "PAYMENTS_TIMEOUT_SECONDS": "3",
        "PAYMENTS_SETTLE_SECONDS": "8",
        "TICKETS_URL": sandbox.url,
        "TICKETS_KEY": KEY,
        "TICKETS_TIMEOUT_SECONDS": "3",
        "TICKETS_SETTLE_SECONDS": "8",
        "EMAIL_BACKEND": "django.core.mail.backends.filebased.EmailBackend",
    }
