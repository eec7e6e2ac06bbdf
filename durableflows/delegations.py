"""Who acts for whom at a moment. Reads only; `services.delegating` writes.

What was lent is not lent on: whoever acts for somebody acts on that person's own rights, never on borrowed ones.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import QuerySet

from durableflows.models import Delegation
from durableflows.transactions import database


def in_force(now: datetime) -> QuerySet[Delegation]:
    """The delegations that hold at this moment: begun, not over, not ended. Their people may not be active."""
    return Delegation.objects.using(database()).filter(from_at__lte=now, until_at__gt=now, ended_at__isnull=True)


def givers_of(person: Any, now: datetime) -> list[Any]:
    """The active people for whom this one acts now, in a fixed order."""
    return _active(in_force(now).filter(taker_id=person.pk).values_list("giver_id", flat=True))


def appointers_of(person: Any, now: datetime) -> Mapping[Any, frozenset[str]]:
    """Keys of those for whom this one acts now -> names of others who have said so, where they have not."""
    found: dict[Any, set[str]] = {}
    rows = in_force(now).filter(taker_id=person.pk, giver__isnull=False)
    for giver, name, made_by in rows.values_list("giver_id", "giver_name", "made_by_name"):
        found.setdefault(giver, set()).add("" if made_by == name else made_by)
    return {giver: frozenset(names) for giver, names in found.items() if "" not in names}


def takers_of(person: Any, now: datetime) -> list[Any]:
    """The active people who act for this one now, in a fixed order."""
    return _active(in_force(now).filter(giver_id=person.pk).values_list("taker_id", flat=True))


def taken_from(people: Collection[Any], now: datetime) -> list[Any]:
    """The active people who act for one of these now, each once, by two queries however many they are."""
    rows = in_force(now).filter(giver_id__in=[person.pk for person in people])
    return _active({*rows.values_list("taker_id", flat=True)})


def lent(now: datetime) -> Mapping[Any, frozenset[Any]]:
    """Keys of those who have lent their rights now -> keys of those who act for them; active people or not."""
    found: dict[Any, set[Any]] = {}
    rows = in_force(now).filter(giver__isnull=False, taker__isnull=False)
    for giver, taker in rows.values_list("giver_id", "taker_id"):
        found.setdefault(giver, set()).add(taker)
    return {giver: frozenset(takers) for giver, takers in found.items()}


def _active(ids: Iterable[Any]) -> list[Any]:
    known = [pk for pk in ids if pk is not None]
    people = get_user_model()._base_manager.using(database()).filter(pk__in=known).order_by("pk") if known else []
    return [one for one in people if getattr(one, "is_active", False)]
