"""Counts of several tables by one statement: of one moment, and by one round trip however many they are. Reads only.

Each part is planned by itself, so it goes by its own index as a statement of its own would.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from django.db.models import Count, F, Max, Min, QuerySet, Value

Part: TypeAlias = QuerySet[Any, Any]
"""What one name stands for, as `part` makes it."""


@dataclass(frozen=True, slots=True)
class Counted:
    """How many rows there are under a name and a word, and one of their moments; None where there is none."""

    name: str
    word: str
    count: int
    at: datetime | None


def part(name: str, rows: QuerySet[Any], at: Min | Max, *, by: str = "") -> Part:
    """Count rows under a name.

    at   the moment that is told with the count
    by   the field whose values are counted one by one, as words; a value that no row has is not told
    """
    named = rows.order_by().annotate(counted=Value(name), word=F(by) if by else Value("")).values("counted", "word")
    counted: Part = named.annotate(many=Count("pk"), at=at)
    return counted.values_list("counted", "word", "many", "at")


def count(parts: Iterable[Part]) -> dict[str, list[Counted]]:
    """Count all parts by one statement: name -> what was counted under it."""
    first, *others = parts
    found: dict[str, list[Counted]] = {}
    for name, word, many, at in first.union(*others, all=True):
        found.setdefault(name, []).append(Counted(name, str(word), many, at))
    return found
