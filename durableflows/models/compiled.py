"""Queries that are asked thousands of times a minute with one value that differs: their text is made once.

Django builds a query's text anew each time; for a row of forty columns that takes longer than the database takes to
answer. Used by the locks, by nobody else: an ordinary query is worth more than a few microseconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

Row = TypeVar("Row", bound=models.Model)

_PLACE = UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class _Text:
    sql: str
    values: tuple[Any, ...]
    place: Any
    converters: list[tuple[int, list[Callable[..., Any]], Any]]
    """Of the columns that the database gives in another type: position, functions, expression."""


def _converted(row: Sequence[Any], text: _Text, connection: BaseDatabaseWrapper) -> list[Any]:
    values = list(row)
    for position, functions, expression in text.converters:
        for function in functions:
            values[position] = function(values[position], expression, connection)
    return values


class LockBy(Generic[Row]):
    """Locks the rows that a UUID names. `ask(rows, value)` narrows all rows of the model down to them."""

    def __init__(self, model: type[Row], ask: Callable[[Any, UUID], Any], *, skip_locked: bool = False) -> None:
        self._model, self._ask, self._skip_locked = model, ask, skip_locked
        self._names = [field.attname for field in model._meta.concrete_fields]
        self._texts: dict[tuple[str, str], _Text] = {}

    def rows(self, alias: str, value: UUID) -> list[Row]:
        """Lock and read them. Raises TransactionManagementError outside a transaction, as Django does."""
        connection = connections[alias]
        if not connection.in_atomic_block:
            raise TransactionManagementError("select_for_update cannot be used outside of a transaction.")
        text = self._texts.get((alias, connection.vendor)) or self._compile(alias)
        wanted = models.UUIDField().get_db_prep_value(value, connection)
        with connection.cursor() as cursor:
            cursor.execute(text.sql, [wanted if given == text.place else given for given in text.values])
            found = cursor.fetchall()
        return [self._model.from_db(alias, self._names, _converted(row, text, connection)) for row in found]

    def _compile(self, alias: str) -> _Text:
        connection = connections[alias]
        skips = self._skip_locked and connection.features.has_select_for_update_skip_locked
        rows = self._model._base_manager.using(alias).select_for_update(no_key=True, skip_locked=skips)
        compiler = self._ask(rows, _PLACE).query.get_compiler(alias)
        sql, values = compiler.as_sql()
        place = models.UUIDField().get_db_prep_value(_PLACE, connection)
        needed = compiler.get_converters([expression for expression, _, _ in compiler.select])
        text = _Text(sql, tuple(values), place, [(position, *both) for position, both in needed.items()])
        self._texts[alias, connection.vendor] = text
        return text
