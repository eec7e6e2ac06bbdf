"""The list of runs: what a person chooses in its address, and the rows that it shows in words.

The same few queries however many runs there are and are shown; nothing is counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest, QueryDict
from django.utils.timesince import timesince

from durableflows.core import registry
from durableflows.core.states import RunState
from durableflows.explain_words import plain, state_words
from durableflows.models import WorkflowRun
from durableflows.reading import narrow
from durableflows.reading.inbox import LONGEST_SEARCH
from durableflows.reading.looking import once
from durableflows.reading.standing import now_of
from durableflows.reading.window import Window, window
from durableflows.selectors import OPERATE, runs_for

CHOICES = {
    "all": "All",
    "live": "Not ended",
    "stuck": "Stuck",
    "people": "Waiting for people",
    "doubt": "In doubt",
    "failing": "Failing now",
}
MORE = {
    "asked": "Somebody is asked",
    "retried": "Tried again later",
    "unsent": "Not sent yet",
    "queued": "In a queue",
    "held": "Held at a provider",
    "leases": "Leases run out",
}
"""Views that the dashboard leads to: each has a tab while it is shown."""
MEANS = {
    "all": "Every run that you may see.",
    "live": "Runs that have not ended.",
    "stuck": "Runs that stand still although nobody paused them, or whose next thing is overdue.",
    "people": "Runs that go on only when a person decides, answers or looks.",
    "doubt": "Runs of which something may have happened outside, and nobody knows yet.",
    "failing": "Runs that are tried again after an error, are parked by one, or have failed in the last 24 hours.",
    "asked": "Runs of which a request waits for somebody’s answer.",
    "retried": "Runs with a step that did not work, and is tried again at a later time.",
    "unsent": "Runs with a step that may begin, and was not sent to a worker yet.",
    "queued": "Runs with a step that was sent, and that no worker has taken yet.",
    "held": "Runs with a step that waits for a provider: for one that is left alone or paused, or for room.",
    "leases": "Runs with a step whose worker should have ended it by now.",
}
NOTHING = {
    "all": "There are no runs that you may see.",
    "live": "Every run has ended.",
    "stuck": "Nothing is stuck.",
    "people": "Nothing waits for a person.",
    "doubt": "Nothing is in doubt.",
    "failing": "Nothing is failing.",
    "asked": "Nobody is asked.",
    "retried": "Nothing waits to be tried again.",
    "unsent": "Everything is sent.",
    "queued": "Nothing waits for a worker.",
    "held": "Nothing waits for a provider.",
    "leases": "No lease has run out.",
}
ORDERS = {"": "last started", "first": "first started"}
SORTS = [("", "Newest first"), ("first", "Oldest first")]
FIELDS = ("workflow", "state", "age", "owner", "tenant", "label", "subject", "provider", "error")
LATER = ("owner", "tenant", "label", "subject", "provider", "error")
"""The fields that are folded away until one is filled in."""


class RunListForm(forms.Form):
    """What an address may say. What is no choice counts as none: old links and mistyped ones show a list."""

    show = forms.CharField(required=False)
    q = forms.CharField(required=False, max_length=LONGEST_SEARCH, label="Search")
    sort = forms.CharField(required=False)
    after = forms.CharField(required=False)
    before = forms.CharField(required=False)
    workflow = forms.CharField(required=False, max_length=LONGEST_SEARCH)
    state = forms.CharField(required=False, max_length=LONGEST_SEARCH)
    age = forms.CharField(required=False, max_length=LONGEST_SEARCH)
    owner = forms.CharField(required=False, max_length=LONGEST_SEARCH, label="Started by")
    tenant = forms.CharField(required=False, max_length=LONGEST_SEARCH)
    label = forms.CharField(required=False, max_length=2 * LONGEST_SEARCH, label="Label, as name=value")
    subject = forms.CharField(required=False, max_length=LONGEST_SEARCH, label="Subject’s id")
    provider = forms.CharField(required=False, max_length=LONGEST_SEARCH)
    error = forms.CharField(required=False, max_length=LONGEST_SEARCH, label="Error class")

    def clean_label(self) -> str:
        """Refuse what has no value: every run would have to be looked at."""
        label: str = self.cleaned_data["label"]
        if label and not all(narrow.label_of(label)):
            raise forms.ValidationError(f"The label {label}: say it as name=value.")
        return label


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the list shows, read from its address. `problem`: why nothing was searched."""

    show: str
    search: str
    sort: str
    fields: dict[str, str]
    after: str
    before: str
    problem: str = ""

    def address(self, **other: str) -> str:
        """The query of a list that differs in these from this one; it begins at its first page."""
        kept = {"show": self.show, "q": self.search, "sort": self.sort, **self.fields} | other
        if kept["show"] == "all":
            kept["show"] = ""
        return f"?{urlencode({name: value for name, value in kept.items() if value})}"

    @property
    def here(self) -> str:
        """The query of this very page."""
        return self.address(after=self.after, before=self.before)

    @property
    def is_narrowed(self) -> bool:
        """Is anything searched or filled in?"""
        return bool(self.search or any(self.fields.values()))

    @property
    def is_unfolded(self) -> bool:
        """Is one of the fields filled in that are folded away?"""
        return any(self.fields[name] for name in LATER)


@dataclass(frozen=True, slots=True)
class Row:
    """One run as the list shows it."""

    run: WorkflowRun
    name: str
    subject: str
    since: str
    why: str
    state: str


def visible(request: HttpRequest) -> narrow.Runs:
    """The runs that the person may see; built once a page. Raises TenantsUnknown."""
    return once(request, "visible runs", lambda: runs_for(request.user))


def may_act(request: HttpRequest) -> bool:
    """Has the person the right to operate runs at all? Each run's tenant is looked at when it is acted on."""
    return bool(once(request, "operates", lambda: request.user.has_perm(OPERATE)))


def chosen(given: QueryDict) -> Chosen:
    """Read what the list is asked for, by its address."""
    form = RunListForm(given)
    form.is_valid()
    asked: dict[str, str] = {name: form.cleaned_data.get(name, "") for name in form.fields}
    show = asked["show"] if asked["show"] in MEANS else "all"
    sort = asked["sort"] if asked["sort"] in ORDERS else ""
    problems = [str(problem) for name in form.errors for problem in form.errors[name]]
    fields = {name: asked[name] for name in FIELDS}
    return Chosen(show, asked["q"], sort, fields, asked["after"], asked["before"], " ".join(problems))


def tabs(choice: Chosen) -> Iterator[tuple[str, str, bool]]:
    """Each saved view: its words, where it leads, and whether it is shown."""
    shown = {choice.show: MORE[choice.show]} if choice.show in MORE else {}
    for name, words in (CHOICES | shown).items():
        yield words, choice.address(show=name), name == choice.show


def selects(choice: Chosen) -> Iterator[tuple[str, str, list[tuple[str, str]], str]]:
    """The fields with a choice: name, label, choices, and what is chosen."""
    workflows = sorted({name for name, _ in registry.known()} | {choice.fields["workflow"]} - {""})
    yield "workflow", "Workflow", [(name, name) for name in workflows], choice.fields["workflow"]
    states = [(str(state), state_words(state).capitalize()) for state in RunState]
    yield "state", "State", states, choice.fields["state"]
    ages = [(name, words.capitalize()) for name, (words, *_) in narrow.AGES.items()]
    yield "age", "Started", ages, choice.fields["age"]


def texts(choice: Chosen) -> Iterator[tuple[str, str, str]]:
    """The fields to type into: name, label, and what is typed."""
    for name in LATER:
        yield name, str(RunListForm.base_fields[name].label or name.capitalize()), choice.fields[name]


def page(request: HttpRequest, choice: Chosen) -> Window[WorkflowRun]:
    """Read the rows of one page: without what runs remember, which no cell shows (R31)."""
    if choice.problem:
        return Window([], "", "")
    light = narrowed(request, choice).defer("data", "manifest", "budget", "labels", "result", "trace_context")
    return window(light, ORDERS[choice.sort], after=choice.after, before=choice.before)


def narrowed(request: HttpRequest, choice: Chosen) -> narrow.Runs:
    """All runs of the list, whatever its page."""
    now = now_of(request)
    runs = narrow.with_fields(choice.fields, narrow.under(choice.show, visible(request), now), now, show=choice.show)
    return narrow.found(choice.search, runs) if choice.search else runs


def listed(runs: list[WorkflowRun], request: HttpRequest) -> list[Row]:
    """Say each run in words."""
    now = now_of(request)
    return [_row(run, now) for run in runs]


def _row(run: WorkflowRun, now: datetime) -> Row:
    age = timesince(run.created_at, now, depth=1).replace("\u00a0", " ") if now > run.created_at else ""
    return Row(run, run.business_key, subject_words(run), f"{age or '0 minutes'} ago", why(run), run.word)


def subject_words(run: WorkflowRun) -> str:
    """What the run is about: "refund request 17"; '' where it is about nothing that is kept."""
    if run.subject_type_id is None or not run.subject_id:
        return ""
    kind: Any = ContentType.objects.get_for_id(run.subject_type_id).model_class()
    return f"{kind._meta.verbose_name if kind else 'object'} {run.subject_id}"


def why(run: WorkflowRun) -> str:
    """Why it does not go on, in a line; '' while it does, or when it has done what it should."""
    if run.alert:
        return plain(run.alert)
    if run.parked_reason:
        return plain(f"{run.parked_reason}: {run.parked_detail}")
    return plain(run.error_text or run.cancel_reason)
