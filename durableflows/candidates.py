"""Who could answer a question at all, found in the accounts: so that one which nobody can answer is noticed at once.

Runs code of the project (log-in backends, TENANTS_OF): never called under a lock or inside a transaction (P11).
Where the accounts cannot say (a log-in backend that lists nobody), it is taken that somebody could.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.contrib.auth import get_backends, get_user_model
from django.db import InterfaceError, OperationalError
from django.db.models import Q, QuerySet

from durableflows.core import log_lines
from durableflows.core.approvers import Approvers
from durableflows.models import ApprovalRequest
from durableflows.rights import kept_out
from durableflows.tenants import acts_in
from durableflows.transactions import database

logger = log_lines.logger("durableflows.approvals")

MOST_LOOKED_AT = 200
"""Of more people than these it is taken that enough could."""


def can_be_answered(request: ApprovalRequest, by: Approvers, now: datetime) -> bool:
    """Are there, for a request that is asked of these people, as many who may say yes as have to?"""
    out = kept_out(request, now)
    found = able(by, tenant=request.tenant, most=by.quorum + len(out))
    return found is None or len(found - out) >= by.quorum


def able(by: Approvers, *, tenant: str, most: int) -> frozenset[Any] | None:
    """The keys of those who could say yes in this tenant, all of them or so many. None: nobody can say who they are."""
    try:
        return None if by.permission and not _backends_can_say() else _able(by, tenant, most)
    except (OperationalError, InterfaceError):
        raise
    except Exception:  # code of the project; who really may is asked again when somebody answers
        logger.exception("it cannot be said who could answer what is asked of %s", by.words())
        return None


def _able(by: Approvers, tenant: str, most: int) -> frozenset[Any] | None:
    found: set[Any] = set()
    for looked_at, person in enumerate(candidates(by)):
        if len(found) >= most:
            break
        if looked_at >= MOST_LOOKED_AT:
            return None
        if acts_in(person, tenant):
            found.add(person.pk)
    return frozenset(found)


def candidates(by: Approvers, *, superusers: bool = True) -> Iterator[Any]:
    """The active people who have the right, are in a group or are named, each once.

    superusers   of a permission those too who have every one
    """
    seen: set[Any] = set()
    for people in _found(by, superusers=superusers):
        for person in people.iterator(chunk_size=MOST_LOOKED_AT):
            if person.pk not in seen:
                seen.add(person.pk)
                yield person


def _found(by: Approvers, *, superusers: bool) -> Iterator[QuerySet[Any]]:
    users = get_user_model()
    named = Q(**{f"{users.USERNAME_FIELD}__in": [*by.people]})
    if by.groups and hasattr(users, "groups"):
        named |= Q(groups__name__in=[*by.groups])
    if by.groups or by.people:
        rows = users._base_manager.using(database())
        yield _active(rows.filter(named).distinct())
    for backend in get_backends():
        if by.permission and hasattr(backend, "with_perm"):
            # Given as a queryset of the default database by Django, whatever the engine's is.
            yield backend.with_perm(by.permission, is_active=True, include_superusers=superusers).using(database())


def _active(people: QuerySet[Any]) -> QuerySet[Any]:
    fields = {field.name for field in people.model._meta.get_fields()}
    return people.filter(is_active=True) if "is_active" in fields else people


def _backends_can_say() -> bool:
    """Does each backend that knows rights list who has one? One without rights of its own adds nobody."""
    return all(hasattr(backend, "with_perm") for backend in get_backends() if hasattr(backend, "has_perm"))
