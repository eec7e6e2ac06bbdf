"""Lending the right to answer requests for a while, and ending it. One function, one verb, one transaction.

A delegation is its own record: who lent what to whom, from when until when, who said so and why. Nothing of it is ever
deleted. What it lets somebody do is decided where rights are asked for, each time anew.
"""

from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from durableflows import clock
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.core import free_text, log_lines
from durableflows.core.keys import read_id
from durableflows.errors import InvalidState, NotAllowed, NotFoundError
from durableflows.models import Delegation
from durableflows.models.compiled import write
from durableflows.rights import as_stored, gone
from durableflows.tenants import tenants_of
from durableflows.transactions import database, transact

logger = log_lines.logger("durableflows.delegations")

LONGEST = timedelta(days=366)
ADD, CHANGE = "durableflows.add_delegation", "durableflows.change_delegation"

Moment = datetime | date
"""A moment, or a day of the current time zone: the whole day."""


def delegate(
    taker: Any,
    *,
    by: Any,
    until: Moment,
    reason: str,
    starts: Moment | None = None,
    giver: Any = None,
) -> Delegation:
    """Let another person answer what `by` may answer, between two moments. The same again changes nothing.

    Whoever takes it must act in a request's tenant too, and lends nothing on. Both stay excluded from what the giver
    asked for.

    Shapes and units   starts: None, from now on; days are whole ones of the current time zone, the last one included;
                       giver: whose right it is, if not of `by`
    Raises             InvalidState for no reason, no time, more than a year, or oneself; NotAllowed for somebody else's
                       right without `durableflows.add_delegation`, or to oneself
    Writes             Delegation
    """
    why, by = free_text.kept_reason(reason, "delegate"), as_stored(by)
    lender = by if giver is None else giver
    _check_people(lender, taker, by)
    now = clock.now()
    from_at, until_at = (now if starts is None else _begin(starts)), _end(until)
    _check_span(from_at, until_at, now)
    made = _insert(lender, taker, _name(by), from_at, until_at, why, now)
    cross(Boundary.PEOPLE_AFTER_COMMIT)
    return made


def _check_people(lender: Any, taker: Any, by: Any) -> None:
    for person in (lender, taker):
        if getattr(person, "pk", None) is None or not getattr(person, "is_active", False) or gone(person):
            raise InvalidState(f"{person} is nobody who can lend or take a right: give two active users")
    if lender.pk == taker.pk:
        raise InvalidState("nobody lends a right to oneself")
    if by is None or by.pk == lender.pk:
        return
    if not getattr(by, "is_active", False) or not by.has_perm(ADD) or not _is_over(by, lender):
        raise NotAllowed(f"{by} may not lend what {lender} may do: the permission {ADD} is needed")
    if by.pk == taker.pk:
        raise NotAllowed(f"{by} may not take what {lender} may do: somebody else must say so")


def _begin(moment: Moment) -> datetime:
    return _aware(moment) if isinstance(moment, datetime) else _midnight(moment)


def _end(moment: Moment) -> datetime:
    if isinstance(moment, datetime):
        return _aware(moment)
    return _midnight(moment + min(timedelta(days=1), date.max - moment))  # no day comes after the last one


def _midnight(day: date) -> datetime:
    """When a day begins in the current time zone, which is not 24 hours after the last one where clocks change."""
    return datetime.combine(day, time(), tzinfo=timezone.get_current_timezone())


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise InvalidState(f"{moment} has no time zone: give an aware datetime, or a date")
    return moment


def _check_span(from_at: datetime, until_at: datetime, now: datetime) -> None:
    if until_at <= max(from_at, now):
        raise InvalidState(f"a delegation until {until_at:%Y-%m-%d %H:%M} would be over before it begins")
    if until_at - from_at > LONGEST:
        raise InvalidState(f"a delegation holds {LONGEST.days} days at most: for longer, give the right itself")


@transact
def _insert(
    lender: Any, taker: Any, by_name: str, from_at: datetime, until_at: datetime, why: str, now: datetime
) -> Delegation:
    row = Delegation(
        giver=lender,
        giver_name=_name(lender),
        taker=taker,
        taker_name=_name(taker),
        from_at=from_at,
        until_at=until_at,
        reason=why,
        made_by_name=by_name,
        made_at=now,
    )
    # The same one at the same instant meets at the constraint, and the first one stands.
    Delegation.objects.using(database()).bulk_create([row], ignore_conflicts=True)
    same = {"giver_id": lender.pk, "taker_id": taker.pk, "from_at": from_at, "until_at": until_at, "ended_at": None}
    made = Delegation.objects.using(database()).get(**same)
    cross(Boundary.PEOPLE_BEFORE_COMMIT)
    logger.info("%s acts for %s from %s until %s", taker.pk, lender.pk, from_at, until_at)
    return made


def end_delegation(delegation_id: UUID | str, *, by: Any, reason: str) -> Delegation:
    """End a delegation before its time: giver, taker, or with `durableflows.change_delegation`. A second time is quiet.

    Raises           NotFoundError, also when it is of others; InvalidState without a reason
    Writes / Locks   Delegation; locks it
    """
    why, by = free_text.kept_reason(reason, "end_delegation"), as_stored(by)
    row = _of(delegation_id, by)
    ended = _finish(row.pk, _name(by), why)
    cross(Boundary.PEOPLE_AFTER_COMMIT)
    return ended


def _of(delegation_id: UUID | str, by: Any) -> Delegation:
    wanted = read_id(delegation_id)
    if wanted is None:
        raise NotFoundError(f"{str(delegation_id)[:60]!r} is not a delegation's id")
    row = Delegation.objects.using(database()).select_related("giver").filter(pk=wanted).first()
    if row is None or not _may_end(row, by):
        raise NotFoundError(f"there is no delegation {wanted}, or none that you may end")
    return row


def _may_end(row: Delegation, by: Any) -> bool:
    if by is None:
        return True
    is_own = by.pk is not None and by.pk in (row.giver_id, row.taker_id)
    return bool(getattr(by, "is_active", False)) and (is_own or (by.has_perm(CHANGE) and _is_over(by, row.giver)))


def _is_over(by: Any, giver: Any) -> bool:
    """Does a right about others' delegations hold for this giver? In the own tenants: in all that the giver acts in."""
    if giver is None or not settings().TENANTS_OF:
        return True
    own, theirs = tenants_of(by), tenants_of(giver)
    return own is None or (theirs is not None and theirs <= own)


@transact
def _finish(delegation_id: UUID, by_name: str, why: str) -> Delegation:
    row = Delegation.objects.using(database()).select_for_update(no_key=True).get(pk=delegation_id)
    if row.ended_at is None:
        row.ended_at, row.ended_by_name, row.ended_reason = clock.now(), by_name, why
        write(row, database(), "ended_at", "ended_by_name", "ended_reason")
        logger.info("%s acts for %s no longer", row.taker_id, row.giver_id)
    cross(Boundary.PEOPLE_BEFORE_COMMIT)
    return row


def _name(person: Any) -> str:
    return "" if person is None else str(person.get_username())[:150]
