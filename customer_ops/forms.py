"""What agents type: a search, a refund, a reason. Reads strictly; whether a refund is possible, `services` says."""

import uuid
from typing import Any

from django import forms

from customer_ops import selectors
from customer_ops.models import Charge
from customer_ops.services import LONGEST_REASON
from durableflows import Money
from durableflows.forms import MoneyFormField

ALL, PART = "all", "part"

SHOWN = (
    ("", "All orders"),
    (selectors.UNDERWAY, "Refund under way"),
    (selectors.WAITING, "Waiting for a manager"),
    (selectors.LOOK, "In doubt or needs a person"),
    (selectors.REFUNDED, "Refunded"),
    (selectors.REFUSED, "Rejected, failed or called off"),
)
"""The filters of the list, in words."""


class SearchForm(forms.Form):
    """Find orders by number or customer, and by how far their refunds are."""

    q = forms.CharField(
        label="Order number, customer or e-mail",
        max_length=100,
        required=False,
        widget=forms.TextInput(attrs={"type": "search", "autocomplete": "off"}),
        error_messages={"max_length": "Search for at most %(limit_value)d letters; these are %(show_value)d."},
    )
    show = forms.ChoiceField(
        choices=SHOWN,
        required=False,
        widget=forms.HiddenInput,
        error_messages={"invalid_choice": "There is no such filter. Choose one of those above the list."},
    )


class RefundForm(forms.Form):
    """Ask for money of one charge back: all that is left, as it was shown, or a part.

    A post without a choice asks for the part that its amount says.
    """

    charge = forms.IntegerField(widget=forms.HiddenInput)
    how = forms.ChoiceField(label="How much", choices=((ALL, "All that is left"), (PART, "A part")), required=False)
    shown_left = MoneyFormField(required=False, widget=forms.HiddenInput)
    amount = MoneyFormField(
        label="Amount",
        required=False,
        error_messages={"required": "An amount is required: how much is to go back?"},
    )
    reason = forms.CharField(
        label="Reason",
        help_text="The manager and the history show it. The customer does not see it.",
        max_length=LONGEST_REASON,
        widget=forms.Textarea(attrs={"rows": 3}),
        error_messages={"required": "A reason is required: the manager and the history show it."},
    )
    form_token = forms.UUIDField(
        widget=forms.HiddenInput, error_messages=dict.fromkeys(("required", "invalid"), "Open the order again.")
    )

    def __init__(self, data: Any = None, *, charge: Charge, initial: dict[str, Any] | None = None) -> None:
        # Ids of its own for each form: a page shows one for each charge.
        super().__init__(data, auto_id=f"charge-{charge.pk}-%s", initial=initial)
        for name in ("amount", "shown_left"):
            field = self.fields[name]
            assert isinstance(field, MoneyFormField)
            field.currency = charge.amount.currency
        self.fields["amount"].label = f"Amount in {charge.amount.currency}"

    @property
    def only_if_left(self) -> Money | None:
        """What was shown as all that is left, when that was chosen."""
        return self.cleaned_data["shown_left"] if self.cleaned_data["how"] == ALL else None

    def clean(self) -> dict[str, Any]:
        """Make the choice and the amount agree: of two that do not, neither is guessed."""
        data = self.cleaned_data
        if data.get("how") != ALL:
            if "amount" in data and data["amount"] is None:
                self.add_error("amount", self.fields["amount"].error_messages["required"])
        elif data.get("shown_left") is None:
            self.add_error(None, "Open the order again: this form does not say how much was left.")
        elif data.get("amount") not in (None, data["shown_left"]):
            self.add_error(
                "amount",
                f"“All that is left” is chosen, which was {data['shown_left'].display}, and another amount stands here."
                " Choose “A part” for it, or empty this field.",
            )
        else:
            data["amount"] = data["shown_left"]
        return data


class CallOffForm(forms.Form):
    """Why a refund is called off."""

    reason = forms.CharField(
        label="Reason",
        help_text="The history shows it. The customer gets no mail.",
        max_length=LONGEST_REASON,
        widget=forms.Textarea(attrs={"rows": 3}),
        error_messages={"required": "A reason is required: the history shows it."},
    )


def fresh_form(charge: Charge) -> RefundForm:
    """Make the form of a charge, with a token that is good for one request."""
    initial = {"charge": charge.pk, "how": PART, "form_token": uuid.uuid4()}
    return RefundForm(charge=charge, initial=initial)
