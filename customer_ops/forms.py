"""What agents type: a search, and a refund. Reads strictly; whether a refund is possible, `services` says."""

import uuid
from typing import Any

from django import forms

from customer_ops.models import Charge
from customer_ops.selectors import Balance
from customer_ops.services import LONGEST_REASON
from durableflows.forms import MoneyFormField


class SearchForm(forms.Form):
    """Find orders by number or customer."""

    q = forms.CharField(
        label="Order number or customer",
        max_length=100,
        required=False,
        widget=forms.TextInput(attrs={"type": "search", "autocomplete": "off"}),
    )


class RefundForm(forms.Form):
    """Ask for money of one charge back. All of what is left stands in it at first."""

    charge = forms.IntegerField(widget=forms.HiddenInput)
    amount = MoneyFormField(label="Amount")
    reason = forms.CharField(label="Reason", max_length=LONGEST_REASON, widget=forms.Textarea(attrs={"rows": 3}))
    form_token = forms.UUIDField(
        widget=forms.HiddenInput, error_messages=dict.fromkeys(("required", "invalid"), "Open the order again.")
    )

    def __init__(self, data: Any = None, *, charge: Charge, initial: dict[str, Any] | None = None) -> None:
        # Ids of its own for each form: a page shows one for each charge.
        super().__init__(data, auto_id=f"charge-{charge.pk}-%s", initial=initial)
        amount = self.fields["amount"]
        assert isinstance(amount, MoneyFormField)
        amount.currency = charge.amount.currency
        amount.label = f"Amount in {charge.amount.currency}"


def fresh_form(balance: Balance) -> RefundForm:
    """Make the form of a charge, with a token that is good for one request."""
    return RefundForm(
        charge=balance.charge,
        initial={"charge": balance.charge.pk, "amount": balance.left, "form_token": uuid.uuid4()},
    )
