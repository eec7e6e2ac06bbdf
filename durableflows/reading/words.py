"""What people say to each other about a request, as forms; and what was said, in order.

Each form is for one verb of `api`, which checks what counts; a form only reads what was typed.
"""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from durableflows import accounts
from durableflows.core import free_text
from durableflows.models import RequestNote


def _text(label: str, needed: str) -> forms.CharField:
    return forms.CharField(
        label=label, max_length=free_text.LONGEST, widget=forms.Textarea, error_messages={"required": needed}
    )


def _day(label: str, needed: str) -> forms.DateField:
    widget = forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"})
    return forms.DateField(label=label, widget=widget, error_messages={"required": needed})


class PersonField(forms.CharField):
    """A person by user name. Cleans to an active user; nobody else is told apart from nobody."""

    default_error_messages = {
        "required": "Say who.",
        "nobody": "There is nobody of this name who can log in.",
    }

    def clean(self, value: Any) -> Any:
        """Find the person."""
        found = accounts.named(super().clean(value))
        if found is None or not found.is_active:
            raise ValidationError(self.error_messages["nobody"], code="nobody")
        return found


class QuestionForm(forms.Form):
    """A question to who asked."""

    text = _text("Your question", "Say what you want to know.")


class ReplyForm(forms.Form):
    """A reply to the last question."""

    text = _text("Your reply", "Say what you reply.")


class WithdrawForm(forms.Form):
    """Taking back what was asked for."""

    reason = _text("Why", "Say why, for those who were asked.")


class AssignForm(forms.Form):
    """Handing a request to a colleague."""

    to = PersonField(label="To whom", max_length=150)
    reason = _text("Why", "Say why, for who is to decide.")


class LendForm(forms.Form):
    """Lending one's rights to answer for some days. Whole days of the current time zone, the last one included."""

    taker = PersonField(label="Your colleague’s user name", max_length=150)
    starts = _day("From", "Say from which day.")
    until = _day("Until and including", "Say until which day.")
    reason = forms.CharField(label="Why", max_length=free_text.LONGEST, error_messages={"required": "Say why."})


class EndForm(forms.Form):
    """Ending a delegation before its time."""

    reason = forms.CharField(label="Why", max_length=free_text.LONGEST, error_messages={"required": "Say why."})


def open_question(notes: Sequence[RequestNote]) -> RequestNote | None:
    """The last question of these notes that has no reply yet."""
    replied = {note.answers_id for note in notes}
    asked = [note for note in notes if note.kind == RequestNote.QUESTION and note.pk not in replied]
    return asked[-1] if asked else None
