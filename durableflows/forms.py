"""Money as a form field: what a person types becomes exact Money, or is refused with the reason.

Owns the reading of typed amounts. Any form may use it. It never rounds and never guesses a currency.
"""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from durableflows.core.money import Money
from durableflows.errors import InvalidState

LONGEST_TEXT = 40


class MoneyFormField(forms.Field):
    """An amount as text: "10.00" in the field's currency, or with the currency before it: "USD 10.00".

    Shapes and units   currency: ISO 4217 code, None: the text must name one; allow_zero: whether nothing will do.
    Cleans to Money, or None when not required and empty. Another currency than the field's is refused.
    """

    widget = forms.TextInput
    default_error_messages = {
        "currency": _("Name the currency before the amount, like USD 10.00."),
        "other_currency": _("The amount must be in %(currency)s."),
        "not_positive": _("The amount must be more than nothing."),
        "too_long": _("This is too long to be an amount."),
    }

    def __init__(self, *, currency: str | None = None, allow_zero: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.currency = currency
        self.allow_zero = allow_zero

    def prepare_value(self, value: Any) -> Any:
        """Write Money as a person would type it."""
        if not isinstance(value, Money):
            return value
        return f"{value.amount:f}" if value.currency == self.currency else str(value)

    def to_python(self, value: Any) -> Money | None:
        """Read what was typed. Raises ValidationError for everything that is not one exact amount."""
        text = str(value).strip() if value is not None else ""
        if not text:
            return None
        if len(text) > LONGEST_TEXT:
            raise ValidationError(self.error_messages["too_long"], code="too_long")
        named, _space, number = text.rpartition(" ")
        currency = named.strip() or self.currency
        if currency is None:
            raise ValidationError(self.error_messages["currency"], code="currency")
        try:
            return Money.parse(number, currency)
        except InvalidState as error:
            raise ValidationError("%(problem)s", code="invalid", params={"problem": _sentence(str(error))}) from None

    def validate(self, value: Any) -> None:
        """Refuse another currency, and nothing at all."""
        super().validate(value)
        if not isinstance(value, Money):
            return
        if self.currency is not None and value.currency != self.currency:
            raise ValidationError(
                self.error_messages["other_currency"], code="other_currency", params={"currency": self.currency}
            )
        if not (value.is_positive or self.allow_zero):
            raise ValidationError(self.error_messages["not_positive"], code="not_positive")

    def widget_attrs(self, widget: forms.Widget) -> dict[str, Any]:
        """Let phones show digits, and browsers keep old amounts to themselves."""
        return {**super().widget_attrs(widget), "inputmode": "decimal", "autocomplete": "off"}

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare amounts, not texts: "10" and "10.00" are the same."""
        try:
            return bool(self.to_python(data) != initial)
        except ValidationError:
            return True


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
