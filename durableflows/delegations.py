"""Who acts for whom at a moment. Reads only; `services.delegating` writes.

What was lent is not lent on: whoever acts for somebody acts on that person's own rights, never on borrowed ones.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import CharField, Expression, F, QuerySet, Value

from durableflows.models import Delegation
from durableflows.models.together import Few
from durableflows.transactions import database


def in_force(now: datetime | Expression) -> QuerySet[Delegation]:
    """The delegations that hold at this moment: begun, not over, not ended. Their people may not be active."""
    return Delegation.objects.using(database()).filter(from_at__lte=now, until_at__gt=now, ended_at__isnull=True)


def givers_of(person: Any, now: datetime | Expression) -> list[Any]:
    """The active people for whom this one acts now, in a fixed order."""
    return _active(in_force(now).filter(taker_id=person.pk).values_list("giver_id", flat=True))


def appointers_of(person: Any, now: datetime | Expression) -> Mapping[Any, frozenset[str]]:
    """Keys of those for whom this one acts now -> names of others who have said so, where they have not."""
    return appointers(in_force(now).filter(taker_id=person.pk))


def appointers(rows: Iterable[Delegation]) -> Mapping[Any, frozenset[str]]:
    """The same of delegations that were read, all to one person."""
    found: dict[Any, set[str]] = {}
    for row in rows:
        if row.giver_id is not None:
            found.setdefault(row.giver_id, set()).add("" if row.made_by_name == row.giver_name else row.made_by_name)
    return {giver: frozenset(names) for giver, names in found.items() if "" not in names}


def reaching(person: Any, now: datetime | Expression) -> tuple[Few, Few]:
    """What was lent to a person, and what was lent to those who have lent it, for `read_together`."""
    fields = ("id", "giver_id", "giver_name", "taker_id", "made_by_name")
    mine = in_force(now).filter(taker_id=person.pk).order_by()
    return Few(mine, fields), Few(in_force(now).filter(taker__in=mine.values("giver")).order_by(), fields)


def with_groups(keys: Collection[Any]) -> dict[Any, tuple[Any, frozenset[str]]]:
    """The active people of these in a fixed order, each with the names of the groups: by one query."""
    users = get_user_model()
    has_groups = any(field.name == "groups" for field in users._meta.get_fields())
    rows = users._base_manager.using(database()).filter(pk__in=keys).order_by("pk")
    found: dict[Any, tuple[Any, set[str]]] = {}
    for one in rows.annotate(one_of_its_groups=F("groups__name") if has_groups else Value(None, CharField())):
        found.setdefault(one.pk, (one, set()))[1].update({one.one_of_its_groups} - {None})
    return {key: (one, frozenset(groups)) for key, (one, groups) in found.items() if getattr(one, "is_active", False)}


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
