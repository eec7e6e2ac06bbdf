"""Several short lists of rows by one statement, for pages that would ask for each by itself. Reads only.

On PostgreSQL a row comes as JSON beside the number of its list; other databases, which no network lies before, are
asked for one list after the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connections, models
from django.db.models import F, QuerySet, Value
from django.db.models.functions import JSONObject


@dataclass(frozen=True, slots=True)
class Few:
    """A short list: `rows`, bounded by whoever asks, and which `fields` of them are read, by their names as attributes
    ("step_id"); of a row that they name as well, then always its id too ("step__id", "step__name").
    """

    rows: QuerySet[Any]
    fields: tuple[str, ...]


def fields_of(model: type[models.Model], *, but: tuple[str, ...] = ()) -> tuple[str, ...]:
    """All fields of a model for `Few`, without these."""
    return tuple(field.attname for field in model._meta.concrete_fields if field.attname not in but)


def read_together(alias: str, *lists: Few) -> list[list[Any]]:
    """Read all lists at one moment. The rows of each come in no order; fields that are not named are deferred."""
    if connections[alias].vendor != "postgresql":
        return [[_made(one.rows.model, row, alias) for row in one.rows.values(*one.fields)] for one in lists]
    first, *others = (_numbered(number, one, alias) for number, one in enumerate(lists))
    found: list[list[Any]] = [[] for _ in lists]
    for number, row in first.union(*others, all=True):
        found[number].append(_made(lists[number].rows.model, row, alias))
    return found


def _numbered(number: int, one: Few, alias: str) -> QuerySet[Any, Any]:
    row = JSONObject(**{name: F(name) for name in one.fields})
    rows: QuerySet[Any, Any] = one.rows.using(alias).annotate(its_list=Value(number), as_json=row)
    return rows.values_list("its_list", "as_json")


def _made(model: type[models.Model], values: Mapping[str, Any], alias: str) -> models.Model:
    """The row of these values, with the rows that it names; JSON has moments and ids as texts."""
    fields = [field for field in model._meta.concrete_fields if field.attname in values]
    given = [field.to_python(values[field.attname]) for field in fields]
    row = model.from_db(alias, [field.attname for field in fields], given)
    for name in sorted({path.partition("__")[0] for path in values if "__" in path}):
        own = {path.partition("__")[2]: value for path, value in values.items() if path.startswith(f"{name}__")}
        related: Any = model._meta.get_field(name).related_model
        setattr(row, name, None if own["id"] is None else _made(related, own, alias))
    return row
