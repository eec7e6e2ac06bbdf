"""Statements of the hot path whose text never changes, made once: Django builds it anew each time, and for a row of
forty columns that takes longer than the database takes to answer.

Used by the locks, by the end of a run's history, by `EngineRow.store`, and for all rows that are written one by one:
`Model.save` would call the receivers of its signals, code of projects and other apps, under the engine's locks (P11).
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


class Question:
    """A query that differs by one value only, a UUID or a text. `ask(alias, value)` gives it as a queryset.

    place   a value of that type that stands nowhere else in the query
    """

    def __init__(self, ask: Callable[[str, Any], "models.QuerySet[Any, Any]"], place: UUID | str = _PLACE) -> None:
        self._ask, self._place = ask, place
        self._texts: dict[tuple[str, str], _Text] = {}

    def answers(self, alias: str, value: UUID | str) -> list[list[Any]]:
        """The rows that it finds, each as its selected values."""
        connection = connections[alias]
        text = self._texts.get((alias, connection.vendor)) or self._compile(alias, connection)
        wanted = _prepared(value, connection)
        with connection.cursor() as cursor:
            cursor.execute(text.sql, [wanted if given == text.place else given for given in text.values])
            return [_converted(row, text, connection) for row in cursor.fetchall()]

    def _compile(self, alias: str, connection: BaseDatabaseWrapper) -> _Text:
        compiler = self._ask(alias, self._place).query.get_compiler(alias)
        sql, values = compiler.as_sql()
        needed = compiler.get_converters([expression for expression, _, _ in compiler.select])
        converters = [(position, *both) for position, both in needed.items()]
        text = _Text(sql, tuple(values), _prepared(self._place, connection), converters)
        self._texts[alias, connection.vendor] = text
        return text


class LockBy(Generic[Row]):
    """Locks the rows that a UUID names. `narrow(rows, value)` narrows all rows of the model down to them."""

    def __init__(self, model: type[Row], narrow: Callable[[Any, UUID], Any], *, skip_locked: bool = False) -> None:
        def ask(alias: str, value: UUID) -> "models.QuerySet[Any, Any]":
            skips = skip_locked and connections[alias].features.has_select_for_update_skip_locked
            rows = model._base_manager.using(alias).select_for_update(no_key=True, skip_locked=skips)
            found: models.QuerySet[Any, Any] = narrow(rows, value)
            return found

        self._model = model
        self._names = [field.attname for field in model._meta.concrete_fields]
        self._question = Question(ask)

    def rows(self, alias: str, value: UUID) -> list[Row]:
        """Lock and read them. Raises TransactionManagementError outside a transaction, as Django does."""
        if not connections[alias].in_atomic_block:
            raise TransactionManagementError("select_for_update cannot be used outside of a transaction.")
        return [self._model.from_db(alias, self._names, values) for values in self._question.answers(alias, value)]


_inserts: dict[tuple[str, type[models.Model]], str] = {}
_updates: dict[tuple[str, type[models.Model], tuple[str, ...]], str] = {}


def insert(row: models.Model, alias: str) -> None:
    """Write a new row. Django's signals of a save are not sent: outsiders hear of facts, not of rows (`run_event`)."""
    connection, meta = connections[alias], row._meta
    fields: list[Any] = list(meta.concrete_fields)
    key = (connection.vendor, type(row))
    sql = _inserts.get(key)
    if sql is None:
        quote = connection.ops.quote_name
        columns, marks = ", ".join(quote(field.column) for field in fields), ", ".join(["%s"] * len(fields))
        sql = f"INSERT INTO {quote(meta.db_table)} ({columns}) VALUES ({marks})"  # noqa: S608 - names of the model's own
        _inserts[key] = sql
    with connection.cursor() as cursor:
        cursor.execute(sql, [_saved(field, field.pre_save(row, add=True), connection) for field in fields])
    row._state.adding, row._state.db = False, alias


def insert_or_update(rows: Sequence[models.Model], alias: str, unique: Sequence[str], changed: Sequence[str]) -> None:
    """Write rows by one statement; where one with the same unique fields is there, change these fields of it.

    No signals of a save, as by `insert`, and no transaction of its own, as `QuerySet.bulk_create` has.
    """
    if not rows:
        return
    connection, meta = connections[alias], rows[0]._meta
    fields: list[Any] = list(meta.concrete_fields)
    quote = connection.ops.quote_name
    columns = {field.name: quote(field.column) for field in fields}
    marks = ", ".join([f"({', '.join(['%s'] * len(fields))})"] * len(rows))
    same = ", ".join(columns[name] for name in unique)
    changes = ", ".join(f"{columns[name]} = EXCLUDED.{columns[name]}" for name in changed)
    into = f"{quote(meta.db_table)} ({', '.join(columns.values())})"
    sql = f"INSERT INTO {into} VALUES {marks} ON CONFLICT ({same}) DO UPDATE SET {changes}"  # noqa: S608 - as above
    given = [_saved(field, field.pre_save(row, add=True), connection) for row in rows for field in fields]
    with connection.cursor() as cursor:
        cursor.execute(sql, given)


def delete(rows: "models.QuerySet[Any]") -> int:
    """Delete rows that nothing refers to, by one statement. `QuerySet.delete` reads them first, and sends signals."""
    count: int = rows._raw_delete(rows.db)  # noqa: SLF001 - Django's own name for it, and there is no public one
    return count


def write(row: models.Model, alias: str, *names: str) -> None:
    """Write these columns of a row that the caller holds, whatever is in it. No signals of a save, as by `insert`."""
    key = row._meta.pk
    assert key is not None
    update(row, alias, {name: getattr(row, name) for name in names}, {key.name: row.pk})


def update(row: models.Model | type[models.Model], alias: str, values: dict[str, Any], where: dict[str, Any]) -> int:
    """Write columns of the rows that have these values, none of them None. Returns how many there were."""
    assert None not in where.values(), "nothing equals NULL"
    connection, meta = connections[alias], row._meta
    fields: list[Any] = [meta.get_field(name) for name in (*values, *where)]
    key = (connection.vendor, meta.model, (*values, "", *where))
    sql = _updates.get(key)
    if sql is None:
        quote = connection.ops.quote_name
        columns = [f"{quote(field.column)} = %s" for field in fields]
        changes, tests = ", ".join(columns[: len(values)]), " AND ".join(columns[len(values) :])
        sql = f"UPDATE {quote(meta.db_table)} SET {changes} WHERE {tests}"  # noqa: S608 - names of the model's own
        _updates[key] = sql
    given = [*values.values(), *where.values()]
    with connection.cursor() as cursor:
        cursor.execute(sql, [_saved(field, value, connection) for field, value in zip(fields, given, strict=True)])
        return int(cursor.rowcount)


def _saved(field: Any, value: Any, connection: BaseDatabaseWrapper) -> Any:
    if isinstance(value, models.Model):
        value = value.pk
    return field.get_db_prep_save(value, connection=connection)


def _prepared(value: UUID | str, connection: BaseDatabaseWrapper) -> Any:
    if isinstance(value, str):
        return value
    return models.UUIDField().get_db_prep_value(value, connection)


def _converted(row: Sequence[Any], text: _Text, connection: BaseDatabaseWrapper) -> list[Any]:
    values = list(row)
    for position, functions, expression in text.converters:
        for function in functions:
            values[position] = function(values[position], expression, connection)
    return values
