"""Three refunds that are there when the desk opens: one is paid, the answer of one is lost, one waits for a manager.

Asked for once, on a desk without refunds, through the same door as the form's.
"""

import uuid
from dataclasses import dataclass

from django.contrib.auth.models import User

from customer_ops import services
from customer_ops.demo.evidence import REFUNDS
from customer_ops.models import Charge, RefundRequest
from customer_ops.sandbox.control import SandboxControl
from durableflows import Money


@dataclass(frozen=True, slots=True)
class Case:
    """A refund of an order that `seed_demo` has made."""

    order: str
    amount_minor: int
    reason: str
    is_answer_lost: bool = False


CASES = (
    Case("R-1004", 17_50, "One of two lamps arrived with a broken shade."),
    Case("R-1008", 40_00, "The parcel went back to us unopened.", is_answer_lost=True),
    Case("R-1023", 600_00, "Half of the set is missing."),
)


def ask(sandbox: SandboxControl) -> bool:
    """Ask for them as the agent, unless somebody has asked for a refund before."""
    if RefundRequest.objects.exists():
        return False
    agent = User.objects.get(username="agent")
    for case in CASES:
        charge = Charge.objects.get(order__number=case.order)
        if case.is_answer_lost:
            sandbox.fault("cut_after", path=REFUNDS, charge=charge.provider_id)
            sandbox.event_fault("late", times=2, charge=charge.provider_id, seconds=60)
        amount = Money(case.amount_minor, charge.amount.currency)
        services.request_refund(charge.pk, amount, case.reason, by=agent, form_token=uuid.uuid4())
    return True
