"""Noticing that nobody can answer an open request any more, and that somebody can again.

Called by the sweeps, now and then. All requests that are asked of the same people are looked at together, so it costs
the same however many are open; whoever could answer is asked for outside any transaction (`candidates`).
Source: design, section 6; R26.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from durableflows import candidates, clock, journal, questions, rights
from durableflows.conf import settings
from durableflows.core.approvers import Approvers
from durableflows.core.payload import JSON
from durableflows.core.states import ApprovalState
from durableflows.errors import InvalidDefinition
from durableflows.models import ApprovalRequest
from durableflows.models.locks import lock_request, lock_step, try_lock_run
from durableflows.rights import Lent
from durableflows.services.turns import each
from durableflows.transactions import database, transact

_RULE = ("permission", "groups", "people", "quorum", "tenant")


@dataclass
class _Looked:
    """When this process has looked last: it is the same for all tickers whether they look twice."""

    at: datetime | None = None


_last = _Looked()


def look_at_all(now: datetime) -> int:
    """Compare what open requests say with the accounts, every UNANSWERABLE_SECONDS. Returns how many have changed."""
    if _last.at is not None and _last.at <= now < _last.at + timedelta(seconds=settings().UNANSWERABLE_SECONDS):
        return 0
    _last.at = now
    return sum(
        each(rows, partial(_mark, can_be_answered=can), line=f"unanswerable requests, part {number}")
        for number, (rows, can) in enumerate(_changed(now))
    )


def forget() -> None:
    """Look again at once, whenever it was looked last. For tests, whose clocks begin anew."""
    _last.at = None


def _changed(now: datetime) -> Iterator[tuple[QuerySet[ApprovalRequest], bool]]:
    """The requests whose row says otherwise than the accounts do now, by those that are asked of the same people."""
    lent = rights.lent(now)
    for rule in _open().order_by().values(*_RULE).distinct():
        alike = _open().filter(**rule)
        try:
            judged = [*_judged(alike.filter(editors=None), rule, lent), *_edited(alike.exclude(editors=None), now)]
        except InvalidDefinition:  # somebody has edited these rows: nobody may answer what is asked by no rule
            judged = [(alike, False)]
        for rows, can in judged:
            yield rows.filter(unanswerable_at__isnull=not can).order_by("created_at"), can


def _judged(
    alike: QuerySet[ApprovalRequest], rule: dict[str, Any], lent: Lent
) -> Iterator[tuple[QuerySet[ApprovalRequest], bool]]:
    """Whether requests of one rule can be answered. Only who asked, and who acts for them, makes a difference."""
    by = Approvers(rule["permission"], rule["groups"], rule["people"], rule["quorum"])
    kept_out_at_most = 1 + max((len(takers) for takers in lent.values()), default=0)
    able = candidates.able(by, tenant=rule["tenant"], most=by.quorum + kept_out_at_most)
    if able is None or len(able) >= by.quorum + kept_out_at_most:
        yield alike, True
        return
    concerned = [giver for giver in {*able, *lent} if ({giver} | lent.get(giver, frozenset())) & able]
    yield alike.exclude(exclude_requester=True, requester_id__in=concerned), len(able) >= by.quorum
    for requester in concerned:
        for is_delegate_out in (False, True):
            rows = alike.filter(requester_id=requester, exclude_requester=True, exclude_delegate=is_delegate_out)
            out = {requester} | (lent.get(requester, frozenset()) if is_delegate_out else frozenset())
            yield rows, len(able - out) >= by.quorum


def _edited(alike: QuerySet[ApprovalRequest], now: datetime) -> Iterator[tuple[QuerySet[ApprovalRequest], bool]]:
    """The few that keep somebody out who has edited their run: each by itself."""
    for request in alike.select_related("requester").distinct():
        by = request.asked_of
        can = by is None or candidates.can_be_answered(request, by, now)
        yield _open().filter(pk=request.pk), can


def _open() -> QuerySet[ApprovalRequest]:
    return ApprovalRequest.objects.using(database()).filter(state=ApprovalState.OPEN)


@transact
def _mark(request_id: UUID, *, can_be_answered: bool) -> bool:
    place = ApprovalRequest.objects.using(database()).filter(pk=request_id).values_list("run_id", "step_id").first()
    run = try_lock_run(place[0]) if place else None
    if run is None or place is None:
        return False
    step, request = lock_step(place[1]), lock_request(request_id)
    now = clock.now()
    if request.state != ApprovalState.OPEN or (request.unanswerable_at is None) is can_be_answered:
        return False
    if can_be_answered:
        request.unanswerable_at = None
        data: dict[str, JSON] = {"request": str(request.pk), "title": request.title}
        journal.record(run, "approval.answerable", at=now, step=step, data=data)
    else:
        questions.mark_unanswerable(run, step, request, now)
    request.store("unanswerable_at")
    run.store(*journal.FIELDS)
    return True
