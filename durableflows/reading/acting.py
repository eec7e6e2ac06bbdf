"""A verb on a run, from its preview to its result: what is shown before it, and why it was not done. Writes nothing.

A preview travels with its form. What is posted counts only while the preview would be the same: else the person is
shown what has changed, and nothing is done (P9). What the verb itself then checks, it checks under the lock.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpRequest
from django.urls import reverse

from durableflows import api
from durableflows.core.money import Money
from durableflows.core.payload import parsed
from durableflows.errors import DurableflowsError
from durableflows.explain_words import full_stop
from durableflows.models import WorkflowRun
from durableflows.reading.verbs import VERBS, Arguments, ReasonForm, Verb, VerbForm, legal
from durableflows.selectors import may_operate
from durableflows.services import limits

Context = dict[str, Any]
PARTS = {
    "changes": ("Becomes other", "calm"),
    "closes": ("Is closed", "calm"),
    "begins": ("Goes on, or is done again", "calm"),
    "keeps": ("Stays as it was given", "calm"),
    "repeats": ("Happens once more", "bad"),
    "undoes": ("Is undone", "look"),
    "stays": ("Cannot be undone", "look"),
    "confirmed": ("Has happened, and is not done again", "good"),
    "unknown": ("Unknown: may have happened, and is settled first or stays to be settled", "look"),
}
"""Each part of a preview: what it is called, and in which colour."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a preview, with the sums of money that it is about."""

    words: str
    tone: str
    lines: Sequence[str]
    money: Sequence[Money]


@dataclass(frozen=True, slots=True)
class Action:
    """A verb that is legal now, and where its page is."""

    address: str
    words: str
    means: str


def actions(request: HttpRequest, run: WorkflowRun, safe: tuple[str, ...]) -> list[Action]:
    """What this person may do now. Answers and verdicts have pages of their own."""
    operates = may_operate(run, request.user)
    if not operates and run.owner_id != request.user.pk:
        return []
    found = [_action(run, verb) for verb in legal(run, safe, operates=operates)]
    if "resolve" in safe and operates:
        ledger = reverse("durableflows:run-ledger", args=[run.pk])
        found.insert(0, Action(ledger, "Say what happened", "once somebody has looked at the provider"))
    if "answer" in safe:
        people = reverse("durableflows:run-people", args=[run.pk])
        found.insert(0, Action(people, "See who is asked for a decision", ""))
    return found


def did(verb: str) -> str:
    """What is said on the run's page after a verb; "" for what is none."""
    if verb == "resolve":
        return "Your verdict is on record, and the run goes on with it."
    return VERBS[verb].did if verb in VERBS else ""


def _action(run: WorkflowRun, verb: Verb) -> Action:
    return Action(reverse("durableflows:action", args=[run.pk, verb.name]), verb.words, verb.means)


def may(verb: str, run: WorkflowRun, person: Any) -> bool:
    """May the person do this at all? Whoever started a run may cancel it. Raises TenantsUnknown."""
    return may_operate(run, person) or (verb == "cancel" and run.owner_id == person.pk)


@dataclass(frozen=True, slots=True)
class Looked:
    """A preview as it is shown: `text` travels with the form, and is compared when it comes back."""

    refused: str
    parts: Sequence[Part]
    text: str


def look(verb: str, run: WorkflowRun, person: Any, arguments: Arguments) -> Looked:
    """Say what the verb would do now. A mistake in the arguments is a refusal."""
    try:
        preview = api.preview(verb, run.pk, by=person, **arguments)
    except DurableflowsError as error:
        return Looked(full_stop(str(error)), (), "")
    parts = list(_parts(preview))
    return Looked(full_stop(preview.refused), parts, json.dumps(_text(preview), ensure_ascii=False))


def _parts(preview: api.Preview) -> Iterator[Part]:
    for name, (words, tone) in PARTS.items():
        lines: Sequence[str] = getattr(preview, name)
        if lines:
            yield Part(words, tone, lines, preview.money.get(name, ()))


def _text(preview: api.Preview) -> dict[str, list[str]]:
    """All that the person is to have seen: what would be done, about how much money, and on which state."""
    said = {words: list(getattr(preview, name)) for name, (words, _) in PARTS.items() if getattr(preview, name)}
    money = [f"{PARTS[name][0].lower()}, {amount}" for name, amounts in preview.money.items() for amount in amounts]
    state = [] if preview.checkpoint is None else [f"checkpoint {preview.checkpoint}"]
    return said | {words: lines for words, lines in (("Money", money), ("The state", state)) if lines}


def changed(shown: str, now: str) -> list[str]:
    """What a preview says that the one before it did not, and what it no longer says; [] when they are the same."""
    if shown == now:
        return []
    old, new = _pairs(shown), _pairs(now)
    gone = [f"No longer: {words.lower()}: {line}" for words, line in old if (words, line) not in new]
    come = [f"New: {words.lower()}: {line}" for words, line in new if (words, line) not in old]
    return [*gone, *come] or ["This page did not say what it had shown, or in another order."]


def _pairs(text: str) -> list[tuple[str, str]]:
    try:
        parts = parsed(text or "{}")
    except ValueError:
        return []
    if not isinstance(parts, dict):
        return []
    return [(str(words), str(line)) for words, lines in parts.items() if isinstance(lines, list) for line in lines]


def do(verb: str, run: WorkflowRun, person: Any, reason: str, arguments: Arguments) -> None:
    """Do it, by the same door as everybody. Raises as the verb does.

    An extension alone would count twice, of a page that is sent twice in the same moment: both look before either does.
    """
    if verb == "extend":
        limits.extend(run.pk, by=person, reason=reason, shown=limits.mark(run), **arguments)
        return
    getattr(api, verb)(run.pk, by=person, reason=reason, **arguments)


class Acting:
    """One verb on one run, as a page shows it and a form brings it back."""

    def __init__(self, request: HttpRequest, run: WorkflowRun, verb: str) -> None:
        self.person, self.run, self.verb = request.user, run, VERBS[verb]
        data = request.POST if request.method == "POST" else None
        asks = self.verb.form is not VerbForm
        self.form: VerbForm = self.verb.form(run, data if asks else {})
        self.is_given = self.form.is_valid() if self.form.is_bound else False
        self.looked = look(verb, run, self.person, self.form.arguments()) if self.is_given else None
        self.is_order = data is not None and "do" in data
        self.reason = ReasonForm(data if self.is_order else None)
        self.shown = str(data.get("shown", "")) if data is not None else ""

    def order(self) -> tuple[int, Context]:
        """Do what was posted, if it is what was shown. Says the status, and what is to be told; 200: it is done."""
        if not self.is_given or not self.reason.is_valid() or self.looked is None:
            return 400, {}
        changes = changed(self.shown, self.looked.text)
        if self.looked.refused or changes:
            return 409, {"changes": changes}
        try:
            do(self.verb.name, self.run, self.person, self.reason.cleaned_data["reason"], self.form.arguments())
        except DurableflowsError as error:
            return 409, {"error": full_stop(str(error))}
        return 200, {}

    def context(self, more: Mapping[str, Any]) -> Context:
        """All that the page shows."""
        asked = [field for field in self.form if not field.is_hidden]
        return {
            "run": self.run,
            "verb": self.verb,
            "form": self.form,
            "asked": asked,
            "given": list(self._given()),
            "looked": self.looked,
            "reason": self.reason,
            "problems": [*problems(self.form), *problems(self.reason)],
            **more,
        }

    def _given(self) -> Iterator[tuple[str, str]]:
        """What was given, as the second form sends it along."""
        if not self.is_given:
            return
        for field in self.form:
            value = field.data
            for one in value if isinstance(value, list) else [value]:
                if one is not None:
                    yield field.html_name, str(one)


def problems(form: forms.Form) -> Iterator[tuple[str, list[str]]]:
    """What is wrong with what was typed, by the name of the field."""
    for name, found in form.errors.items():
        label = form.fields[name].label or name.capitalize() if name in form.fields else ""
        yield str(label), [str(one) for one in found]
