"""The list of the inbox: what a person chooses in its address, and the rows that it shows in words.

The same few queries however many rows there are and are shown.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.db.models import Prefetch, Q, QuerySet
from django.http import HttpRequest

from durableflows import votes
from durableflows.core import registry
from durableflows.core.states import ApprovalState
from durableflows.models import ApprovalDecision, ApprovalRequest, RequestNote
from durableflows.reading.facts import amount_of, whom_of
from durableflows.reading.looking import as_id
from durableflows.reading.standing import (
    count_words,
    expires_words,
    narrowed,
    now_of,
    since_words,
    standing_words,
    visible,
    waiting,
    waiting_count,
)
from durableflows.reading.window import Window, window
from durableflows.templatetags.durableflows import tone
from durableflows.transactions import database

CHOICES = {
    "mine": "Waiting for me",
    "team": "My team’s",
    "overdue": "Overdue",
    "by_me": "Decided by me",
    "asked": "Asked by me",
    "all": "All",
}
NOTHING = {
    "mine": "Nothing waits for you.",
    "team": "Nothing is open in your team.",
    "overdue": "No request is overdue.",
    "by_me": "You have decided nothing yet.",
    "asked": "You have asked for nothing that somebody decides.",
    "all": "There are no requests that you may see.",
}
SORTS = [("soonest", "Expires soonest"), ("newest", "Newest"), ("oldest", "Oldest")]
SOONEST = ("mine", "team", "overdue")
"""The choices of what can still be answered: what expires first comes first."""
LONGEST_SEARCH = 200
QUESTIONS_SHOWN = 5
SOON_SECONDS = 86_400


class ListForm(forms.Form):
    """What an address may say. What is no choice counts as none: old links and mistyped ones show a list."""

    show = forms.CharField(required=False)
    q = forms.CharField(required=False, max_length=LONGEST_SEARCH, label="Search")
    workflow = forms.CharField(required=False)
    sort = forms.CharField(required=False)
    after = forms.CharField(required=False)
    before = forms.CharField(required=False)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the list shows, read from its address. `problem`: why nothing was searched."""

    show: str
    search: str
    workflow: str
    sort: str
    after: str
    before: str
    problem: str = ""

    def address(self, **other: str) -> str:
        """The query of a list that differs in these from this one; it begins at its first page."""
        kept = {"show": self.show, "q": self.search, "workflow": self.workflow, "sort": self.sort} | other
        if kept["show"] == "mine" and not kept["q"]:
            kept["show"] = ""
        return f"?{urlencode({name: value for name, value in kept.items() if value})}"


@dataclass(frozen=True, slots=True)
class Row:
    """One request as the list shows it."""

    asked: ApprovalRequest
    amount: str
    whom: str
    since: str
    expires: str
    is_soon: bool
    standing: str
    tone: str
    yes_count: int


def chosen(request: HttpRequest) -> Chosen:
    """Read what the list is asked for. A search without a choice looks through everything."""
    form = ListForm(request.GET)
    form.is_valid()
    given: dict[str, str] = {name: form.cleaned_data.get(name, "") for name in form.fields}
    show = given["show"] if given["show"] in CHOICES else ("all" if given["q"] else "mine")
    sort = given["sort"] if given["sort"] in dict(SORTS) else ""
    problem = " ".join(str(one) for one in form.errors.get("q", []))
    return Chosen(show, given["q"], given["workflow"], sort, given["after"], given["before"], problem)


def tabs(request: HttpRequest, choice: Chosen) -> Iterator[tuple[str, str, bool]]:
    """Each choice: its words, where it leads, and whether it is shown. The first says how many wait."""
    for name, words in CHOICES.items():
        count = waiting_count(request) if name == "mine" else 0
        said = f"{words} ({count_words(count)})" if count else words
        yield said, choice.address(show=name, sort=""), name == choice.show


def questions(request: HttpRequest) -> list[RequestNote]:
    """What those who decide ask the person about own requests, and have no reply to: the newest few."""
    notes = RequestNote.objects.using(database()).filter(kind=RequestNote.QUESTION, replies__isnull=True)
    mine = notes.filter(request__requester_id=request.user.pk, request__state=ApprovalState.OPEN)
    return list(mine.select_related("request").order_by("-at")[:QUESTIONS_SHOWN])


def workflows() -> list[str]:
    """The workflows that this process knows; of a single one there is nothing to choose."""
    names = sorted({name for name, _ in registry.known()})
    return names if len(names) > 1 else []


def page(request: HttpRequest, choice: Chosen) -> Window[ApprovalRequest]:
    """Read the rows of one page."""
    if choice.problem:
        return Window([], "", "")
    order = choice.sort or ("soonest" if choice.show in SOONEST else "newest")
    return window(_light(found(request, choice)), order, after=choice.after, before=choice.before)


def found(request: HttpRequest, choice: Chosen) -> QuerySet[ApprovalRequest]:
    """All requests under the choice and the search; none for what cannot be searched for."""
    return ApprovalRequest.objects.none() if choice.problem else _searched(_chosen(request, choice), choice)


def _chosen(request: HttpRequest, choice: Chosen) -> QuerySet[ApprovalRequest]:
    if choice.show == "mine":
        return waiting(request)
    return narrowed(request, visible(request), choice.show)


def _searched(rows: QuerySet[ApprovalRequest], choice: Chosen) -> QuerySet[ApprovalRequest]:
    if choice.workflow:
        rows = rows.filter(run__workflow=choice.workflow)
    if not choice.search:
        return rows
    wanted = as_id(choice.search)
    if wanted is not None:
        return rows.filter(pk=wanted)
    for word in choice.search.split():
        rows = rows.filter(Q(title__icontains=word) | Q(requester_name__icontains=word) | Q(binding__icontains=word))
    return rows


def _light(rows: QuerySet[ApprovalRequest]) -> QuerySet[ApprovalRequest]:
    """Without the run, which no cell shows: a page must not load what each of them remembers (R31)."""
    approvals = ApprovalDecision.objects.using(database()).filter(verdict="approve", voided_at__isnull=True)
    approvals = approvals.only("request_id", "verdict", "edits", "actor_id", "for_person_id")
    yes = Prefetch("decisions", queryset=approvals, to_attr="yes")
    return rows.select_related(None).defer("ladder").prefetch_related(yes)


def listed(rows: list[ApprovalRequest], request: HttpRequest) -> list[Row]:
    """Say each row in words."""
    now = now_of(request)
    return [_row(asked, now) for asked in rows]


def _row(asked: Any, now: datetime) -> Row:
    is_open = asked.state == ApprovalState.OPEN
    left = (asked.expires_at - now).total_seconds()
    return Row(
        asked=asked,
        amount=amount_of(asked),
        whom=whom_of(asked),
        since=since_words(asked, now),
        expires=expires_words(asked, now),
        is_soon=is_open and left < SOON_SECONDS,
        standing=standing_words(asked, now),
        tone="look" if is_open and (left <= 0 or asked.ladder_position) else str(tone(asked.state)),
        yes_count=votes.so_far(asked.yes) if asked.quorum > 1 else 0,
    )
