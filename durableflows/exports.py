"""What was asked, who decided it and who looked, as CSV for auditors: line by line, safe to open in a spreadsheet.

Reads only, through `selectors`: whoever exports gets the rows of the own tenants and nothing else, and needs the right
to view all of their requests. Pages and the command call it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Model, QuerySet

from durableflows.core import cells, log_lines
from durableflows.errors import InvalidState, NotAllowed
from durableflows.models import ApprovalDecision, ApprovalRequest, RequestView
from durableflows.selectors import OPERATE, VIEW_REQUESTS, Person, requests_for
from durableflows.services.looks import facts_at
from durableflows.transactions import database

logger = log_lines.logger("durableflows.exports")

PAGE = 500
"""Rows that are read at a time."""

_LARGE = (
    *("run__data", "run__manifest", "run__budget", "run__labels", "run__result", "run__trace_context"),
    *("step__input", "step__output", "step__stood", "step__joined"),
)
"""What no cell shows: what each run remembers could be more than a page of rows may take (R31)."""

Cells = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody asks for. `by`: None for trusted code; `among`: only these requests, None for all."""

    what: str
    by: Person | None = None
    since: datetime | None = None
    until: datetime | None = None
    workflow: str = ""
    among: "QuerySet[ApprovalRequest] | None" = None


def may_export(person: Person) -> bool:
    """Has the person the right to view all requests of the own tenants?"""
    return bool(getattr(person, "is_active", False) and (person.has_perm(VIEW_REQUESTS) or person.has_perm(OPERATE)))


def lines(wanted: Wanted) -> Iterator[str]:
    """The lines of the table, its heads first. Nothing is kept: a million rows take no more memory than one page.

    Raises   NotAllowed without the right; InvalidState for what is no table; TenantsUnknown. All before the first line
    """
    if wanted.what not in TABLES:
        raise InvalidState(f"{wanted.what!r} is no table: say {', '.join(TABLES)}")
    if wanted.by is not None and not may_export(wanted.by):
        raise NotAllowed(f"{wanted.by} may not export requests: the permission {VIEW_REQUESTS} is needed")
    table, requests = TABLES[wanted.what], _requests(wanted)
    logger.info("%s exports %s", wanted.by or "the command", wanted.what)
    rows = (list(table.cells(row).values()) for row in _by_pages(table.rows(requests, wanted)))
    return cells.lines(table.heads, rows)


def _requests(wanted: Wanted) -> "QuerySet[ApprovalRequest]":
    all_ = ApprovalRequest.objects.using(database())
    requests = all_ if wanted.by is None else requests_for(wanted.by)
    if wanted.workflow:
        requests = requests.filter(run__workflow=wanted.workflow)
    if wanted.among is not None:
        requests = requests.filter(pk__in=wanted.among.order_by().values("pk"))
    return requests


def _by_pages(rows: "QuerySet[Any]") -> Iterator[Any]:
    """All rows in the order of their making, a page at a time: no cursor stays open while somebody downloads."""
    last: UUID | None = None
    while True:
        page = list((rows if last is None else rows.filter(pk__gt=last)).order_by("pk")[:PAGE])
        yield from page
        if len(page) < PAGE:
            return
        last = page[-1].pk


def _within(rows: "QuerySet[Any]", wanted: Wanted, name: str) -> "QuerySet[Any]":
    if wanted.since is not None:
        rows = rows.filter(**{f"{name}__gte": wanted.since})
    return rows if wanted.until is None else rows.filter(**{f"{name}__lt": wanted.until})


def _all_requests(requests: "QuerySet[ApprovalRequest]", wanted: Wanted) -> "QuerySet[Any]":
    return _within(requests.select_related("run", "step").defer(*_LARGE), wanted, "created_at")


def _decisions(requests: "QuerySet[ApprovalRequest]", wanted: Wanted) -> "QuerySet[Any]":
    return _within(_of(ApprovalDecision, requests), wanted, "at")


def _looks(requests: "QuerySet[ApprovalRequest]", wanted: Wanted) -> "QuerySet[Any]":
    return _within(_of(RequestView, requests), wanted, "last_at")


def _of(model: type[Model], requests: "QuerySet[ApprovalRequest]") -> "QuerySet[Any]":
    rows = model._default_manager.using(database())
    rows = rows.filter(request__in=requests.order_by().values("pk")).select_related("request__run", "request__step")
    return rows.defer(*(f"request__{name}" for name in (*_LARGE, "context", "ladder", "edit_schema")))


def _request_cells(asked: ApprovalRequest) -> Cells:
    return {
        "request": asked.pk,
        "workflow": asked.run.workflow,
        "version": asked.run.version,
        "run": asked.run_id,
        "step": asked.step.name,
        "item": asked.step.item_key,
        "tenant": asked.tenant,
        "title": asked.title,
        "asked_at": asked.created_at,
        "asked_by": asked.requester_name,
        "state": str(asked.state),
        "closed_at": asked.closed_at,
        "closed_reason": asked.closed_reason,
    }


def _whole_request(asked: ApprovalRequest) -> Cells:
    who = {"permission": asked.permission, "groups": asked.groups, "people": asked.people, "band": asked.band}
    rules = {**who, "quorum": asked.quorum, "ladder": asked.ladder}
    times = {"expires_at": asked.expires_at, "handed_on": asked.ladder_position}
    facts = {"facts": asked.binding, "context": asked.context, "facts_digest": asked.facts_digest}
    return {**_request_cells(asked), **rules, **times, **facts}


def _decision_cells(one: ApprovalDecision) -> Cells:
    return {
        "decision": one.pk,
        "decided_at": one.at,
        "decided_by": one.actor_name,
        "verdict": one.verdict,
        "edits": one.edits or "",
        "comment": one.comment,
        "door": one.door,
        "origin": one.origin,
        "right": one.right,
        "for": one.for_name,
        "facts": facts_at(one.request, one.facts_digest),
        "facts_digest": one.facts_digest,
        "void_since": one.voided_at,
        "void_reason": one.voided_reason,
        **_request_cells(one.request),
    }


def _look_cells(one: RequestView) -> Cells:
    return {
        "person": one.person_name,
        "door": one.door,
        "origin": one.origin,
        "first_at": one.first_at,
        "last_at": one.last_at,
        "facts": facts_at(one.request, one.facts_digest),
        "facts_digest": one.facts_digest,
        **_request_cells(one.request),
    }


@dataclass(frozen=True, slots=True)
class _Table:
    heads: Sequence[str]
    rows: "Callable[[QuerySet[ApprovalRequest], Wanted], QuerySet[Any]]"
    cells: Callable[[Any], Cells]


_OF_REQUEST = (
    *("request", "workflow", "version", "run", "step", "item", "tenant", "title", "asked_at", "asked_by"),
    *("state", "closed_at", "closed_reason"),
)
_RULES = (
    *("permission", "groups", "people", "band", "quorum", "ladder", "expires_at"),
    *("handed_on", "facts", "context", "facts_digest"),
)
_OF_DECISION = (
    *("decision", "decided_at", "decided_by", "verdict", "edits", "comment", "door", "origin", "right", "for"),
    *("facts", "facts_digest", "void_since", "void_reason"),
)
_OF_LOOK = ("person", "door", "origin", "first_at", "last_at", "facts", "facts_digest")

TABLES: Mapping[str, _Table] = {
    "decisions": _Table((*_OF_DECISION, *_OF_REQUEST), _decisions, _decision_cells),
    "requests": _Table((*_OF_REQUEST, *_RULES), _all_requests, _whole_request),
    "looks": _Table((*_OF_LOOK, *_OF_REQUEST), _looks, _look_cells),
}
"""What can be exported: each decision, each request, each look of a person at the facts of one."""
