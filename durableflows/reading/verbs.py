"""The verbs that the console has a page for: their words, what they ask for, and which are legal now. Reads no rows.

A form reads what a person typed into the arguments of `api`; the verb itself checks them again.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms

from durableflows import gate
from durableflows.conf import settings
from durableflows.core import free_text, registry
from durableflows.core.budget import COUNTERS
from durableflows.core.payload import JSON, parsed, redact, same
from durableflows.core.states import EFFECT_REPEATABLE, RUN_REOPENABLE, ParkedReason
from durableflows.explain_words import SAFE_WORDS
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.reading.words import PersonField
from durableflows.transactions import database

Arguments = dict[str, Any]
FIELD = "field-"
"""Before the name of each field of the state, in the form that changes it."""


class ReasonForm(forms.Form):
    """Why a person does it: it stays on the record."""

    reason = forms.CharField(
        max_length=free_text.LONGEST,
        widget=forms.Textarea(attrs={"rows": 3}),
        error_messages={"required": "Say why: the reason stays on the record."},
    )

    def clean_reason(self) -> str:
        """Refuse a reason of which nothing is seen."""
        reason: str = self.cleaned_data["reason"]
        if not free_text.is_seen(reason):
            raise forms.ValidationError("Say why: the reason stays on the record.")
        return reason


class VerbForm(forms.Form):
    """What a verb asks for besides a reason: nothing."""

    def __init__(self, run: WorkflowRun, *args: Any, **options: Any) -> None:
        self.run = run
        super().__init__(*args, **options)
        self.label_suffix = ""

    def arguments(self) -> Arguments:
        """What is given to the verb, and to its preview."""
        return {}


class ExtendForm(VerbForm):
    """How much more time and budget."""

    hours = forms.DecimalField(required=False, min_value=0, max_value=100_000, label="More time, in hours")

    def __init__(self, run: WorkflowRun, *args: Any, **options: Any) -> None:
        super().__init__(run, *args, **options)
        for name in COUNTERS:
            if name in (run.budget or {}):
                kind = forms.DecimalField if name == "cost_usd" else forms.IntegerField
                label = f"More {name.replace('_', ' ')}, beyond {run.budget[name]}"
                self.fields[name] = kind(required=False, min_value=0, label=label)

    def arguments(self) -> Arguments:
        """A span and amounts; what is left empty is not extended."""
        given = {name: value for name, value in self.cleaned_data.items() if value}
        hours = given.pop("hours", None)
        budget = {name: str(value) if name == "cost_usd" else value for name, value in given.items()}
        return {"deadline": timedelta(hours=float(hours)) if hours else None, "budget": budget}


class RedriveForm(VerbForm):
    """From which step, and what of the confirmed is done once more."""

    step = forms.ChoiceField(label="Go on from")
    repeat = forms.MultipleChoiceField(
        required=False,
        label="Do once more, although it has happened",
        widget=forms.CheckboxSelectMultiple,
        help_text="Leave all unmarked unless you mean it: an effect that is marked happens twice.",
    )

    def __init__(self, run: WorkflowRun, *args: Any, **options: Any) -> None:
        super().__init__(run, *args, **options)
        steps = StepRun.objects.using(database()).filter(run=run, gather=None).order_by("-id")
        names = dict.fromkeys(steps.values_list("name", flat=True)[:200])
        self.fields["step"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        done = SideEffect.objects.using(database()).filter(run=run, state__in=EFFECT_REPEATABLE).order_by("id")
        effects = dict.fromkeys(done.values_list("operation", flat=True)[:200])
        self.fields["repeat"].choices = [(name, name) for name in effects]  # type: ignore[attr-defined]
        if not effects:
            del self.fields["repeat"]

    def arguments(self) -> Arguments:
        """A step, and names of effects."""
        return {"step": self.cleaned_data["step"], "repeat": tuple(self.cleaned_data.get("repeat", ()))}


class EditForm(VerbForm):
    """New values for fields of the state. What looks secret is neither shown nor changed here."""

    def __init__(self, run: WorkflowRun, *args: Any, **options: Any) -> None:
        super().__init__(run, *args, **options)
        checkpoint = forms.IntegerField(widget=forms.HiddenInput, initial=run.checkpoint_sequence)
        self.fields["checkpoint"] = checkpoint
        for name, value in (run.data if isinstance(run.data, dict) else {}).items():
            if redact({name: value}) == {name: value}:
                self.fields[FIELD + name] = _value_field(name, value)

    def arguments(self) -> Arguments:
        """The fields whose values are others than they were."""
        given = {name.removeprefix(FIELD): new for name, new in self.cleaned_data.items() if name.startswith(FIELD)}
        changes = {name: _read(new, self.run.data[name]) for name, new in given.items()}
        changes = {name: new for name, new in changes.items() if not same(new, self.run.data[name])}
        return {"changes": changes, "checkpoint": self.cleaned_data["checkpoint"]}


def _value_field(name: str, value: JSON) -> forms.CharField:
    """Text as it is; all else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    help_text = "" if isinstance(value, str) else "as JSON"
    # A field of one line would lose the ends of lines.
    is_long = len(text) > 60 or "\n" in text or "\r" in text
    widget = forms.Textarea(attrs={"rows": 3}) if is_long else forms.TextInput()
    label = name.replace("_", " ").capitalize()
    # What was shown is given back letter for letter.
    # Written with blanks, a value is longer than it is stored; the state itself says what is too large.
    longest = 2 * settings().MAX_STATE_BYTES
    return forms.CharField(
        required=False, strip=False, label=label, initial=text, help_text=help_text, widget=widget, max_length=longest
    )


def _read(text: str, old: JSON) -> object:
    """As text where it was text; else as JSON, and what is none as the text that it is: the state refuses it.

    A browser sends each end of a line as CR LF: what comes back with nothing else changed is what was shown.
    """
    if isinstance(old, str):
        return old if _lines(text) == _lines(old) else _lines(text)
    try:
        return parsed(text)
    except ValueError:
        return text


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


class AbandonForm(VerbForm):
    """Who settles what is left open."""

    heir = PersonField(max_length=150, label="Who settles what is left", help_text="The name of an account")

    def arguments(self) -> Arguments:
        """A person."""
        return {"heir": self.cleaned_data["heir"]}


class MigrateForm(VerbForm):
    """Under which newer version."""

    version = forms.TypedChoiceField(coerce=int, label="Go on under version")

    def __init__(self, run: WorkflowRun, *args: Any, **options: Any) -> None:
        super().__init__(run, *args, **options)
        ways, field = list(gate.ways_forward(run)), self.fields["version"]
        field.choices = [(version, str(version)) for version in ways]  # type: ignore[attr-defined]
        stands = f"The run is under version {run.version} now, and no declared migration leads"
        field.error_messages["invalid_choice"] = f"{stands} to version %(value)s."
        field.help_text = "" if ways else f"{stands} further."

    def arguments(self) -> Arguments:
        """A version."""
        return {"version": self.cleaned_data["version"]}


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb as the console shows it. `did`: what is said when it is done; `is_grave`: it cannot be taken back."""

    name: str
    words: str
    did: str
    means: str
    form: type[VerbForm] = VerbForm
    is_grave: bool = False


def _means(verb: str) -> str:
    """What it means, without its name before it."""
    words = SAFE_WORDS[verb]
    return words.partition(": ")[2] or words


_EDIT = "correct a value that it works with, while it stands still; it is kept who did so, and why"
_ABANDON = "end it at once, whatever of it is open, and name who settles what is left"
_MIGRATE = "let it go on under a newer version of its workflow, as that one declares it; what happened stays"
_VERBS = (
    Verb("resume", "Resume it", "The run goes on.", _means("resume")),
    Verb("retry", "Retry it now", "The run goes on now.", _means("retry")),
    Verb("pause", "Pause it", "The run is paused: nothing more of it begins.", _means("pause")),
    Verb("extend", "Give it more time or budget", "The run has more.", _means("extend"), ExtendForm),
    Verb("redrive", "Go on from an earlier step", "The run goes on.", _means("redrive"), RedriveForm),
    Verb("edit", "Change its state", "The state was changed.", _EDIT, EditForm),
    Verb("migrate", "Move it to a newer version", "The run goes on under the newer version.", _MIGRATE, MigrateForm),
    Verb("cancel", "Cancel it", "The run is being cancelled.", _means("cancel"), is_grave=True),
    Verb("compensate", "Undo what it did", "What it did is being undone.", _means("compensate"), is_grave=True),
    Verb("abandon", "Abandon it", "The run was abandoned.", _ABANDON, AbandonForm, is_grave=True),
)
VERBS: Mapping[str, Verb] = {verb.name: verb for verb in _VERBS}
IN_BULK = ("pause", "resume", "retry", "cancel")
"""Those that need nothing but a reason, and mean the same for each run."""


def legal(run: WorkflowRun, safe: tuple[str, ...], *, operates: bool) -> Iterator[Verb]:
    """The verbs that are accepted now from this person.

    safe   of the run's explanation; operates: whether the person may operate it; else it is the person's own
    """
    goes_on = run.ended_at is None and not run.ending_reason
    parked = bool(run.parked_reason)
    more = {
        "extend": goes_on,
        "redrive": goes_on and parked and run.parked_reason != ParkedReason.PAUSED,
        "edit": (goes_on and parked) or (run.state in RUN_REOPENABLE and run.cancel_asked_at is None),
        "abandon": run.ended_at is None,
        "migrate": goes_on and gate.way_forward(run) is not None,
    }
    for verb in _VERBS:
        if (verb.name in safe or more.get(verb.name)) and (operates or verb.name == "cancel"):
            yield verb


def is_known(run: WorkflowRun) -> bool:
    """Does this process know the run's workflow, so that its state can be read and checked?"""
    return (run.workflow, run.version) in registry.known()
