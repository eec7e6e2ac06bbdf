"""A person's verdict on an effect: what can be said of it, and why it was not taken. Writes nothing itself.

The verdict is bound to the version of the row that was shown; the service looks again under the lock (protocol rule 5).
"""

from collections.abc import Mapping
from typing import Any, Self
from uuid import UUID

from django import forms
from django.http import HttpRequest

from durableflows import api
from durableflows.core.operate import money_in, sums
from durableflows.core.payload import JSON, parsed
from durableflows.core.states import EffectState
from durableflows.errors import DurableflowsError, TooLate
from durableflows.explain_words import full_stop
from durableflows.models import SideEffect, WorkflowRun
from durableflows.reading.acting import problems
from durableflows.reading.run_page import Context, shown
from durableflows.reading.verbs import ReasonForm
from durableflows.transactions import database

VERDICTS = {
    "happened": "It happened. The step goes on with the receipt below, and sends nothing.",
    "did_not_happen": "It did not happen. What comes next is a new request, under a new key.",
    "ask_again": "Ask the provider once more, by its lookup.",
    "seen": "I have seen the contradiction: what the row says now stays.",
    "undone": "I have undone it by hand.",
}


class VerdictForm(ReasonForm):
    """What happened, by what it is known, and why the person says so."""

    verdict = forms.ChoiceField(widget=forms.RadioSelect, error_messages={"required": "Choose what happened."})
    receipt = forms.CharField(
        required=False,
        max_length=100_000,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
        label="Receipt",
        help_text="For “it happened”: what the provider answered, as JSON, or its own name for it as {“id”: …}.",
    )
    row_version = forms.IntegerField(widget=forms.HiddenInput)

    field_order = ("verdict", "receipt", "reason", "row_version")

    def __init__(self, row: SideEffect, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.label_suffix = ""
        self.fields["verdict"].choices = [(name, VERDICTS[name]) for name in sayable(row)]  # type: ignore[attr-defined]
        self.fields["row_version"].initial = row.row_version

    def clean_receipt(self) -> JSON:
        """Read the receipt as JSON: an object mostly; a text or a list where the effect gives one."""
        text = self.cleaned_data["receipt"].strip()
        try:
            receipt = parsed(text) if text else None
        except ValueError as error:
            raise forms.ValidationError("This is no JSON: write it as {“id”: “…”} with straight quotes.") from error
        if receipt in ("", [], {}):
            raise forms.ValidationError("A receipt says something: by what the provider knows it, at least.")
        return receipt


def sayable(row: SideEffect) -> list[str]:
    """Which verdicts a row can take; the service says the last word."""
    if row.state == EffectState.UNDO_FAILED:
        return ["undone"]
    said = []
    if row.state in (EffectState.UNKNOWN, EffectState.ACCEPTED, EffectState.DISPATCHED, EffectState.ABSENT):
        said += ["happened", "did_not_happen", "ask_again"]
    if row.state == EffectState.REJECTED:
        said += ["did_not_happen"]
    return [*said, "seen"] if row.contradiction else said


class Resolving:
    """One effect, as a page shows it and a form brings it back."""

    def __init__(self, request: HttpRequest, run: WorkflowRun, row: SideEffect) -> None:
        self.person, self.run, self.row = request.user, run, row
        self.form = VerdictForm(row, request.POST if request.method == "POST" else None)

    @classmethod
    def find(cls, request: HttpRequest, run: WorkflowRun, effect_id: UUID) -> Self | None:
        """The effect, if it is of this run."""
        row = SideEffect.objects.using(database()).filter(pk=effect_id, run=run).first()
        return None if row is None else cls(request, run, row)

    def order(self) -> tuple[int, Context]:
        """Give the verdict. Says the status, and what is to be told; 200: it is taken."""
        if not self.form.is_valid():
            return 400, {"form": self.form}
        given = self.form.cleaned_data
        try:
            api.resolve_effect(
                self.row.pk,
                given["verdict"],
                by=self.person,
                reason=given["reason"],
                row_version=given["row_version"],
                receipt=given["receipt"],
            )
        except TooLate as error:  # the row is another one now: it is looked at anew, and decided anew
            return 409, {"error": full_stop(str(error)), "form": VerdictForm(self._now())}
        except DurableflowsError as error:
            return 409, {"error": full_stop(str(error)), "form": self.form}
        return 200, {}

    def _now(self) -> SideEffect:
        return SideEffect.objects.using(database()).get(pk=self.row.pk)

    def context(self, more: Mapping[str, Any]) -> Context:
        """All that the page shows."""
        return {
            "run": self.run,
            "row": self.row,
            "form": self.form,
            "arguments": shown(self.row.arguments, sees=True),
            "receipt": shown(self.row.receipt, sees=True),
            "amounts": sums(money_in(self.row.arguments)),
            "can_be_said": bool(sayable(self.row)),
            "problems": list(problems(self.form)) if self.form.is_bound and not more.get("error") else [],
            **more,
        }
