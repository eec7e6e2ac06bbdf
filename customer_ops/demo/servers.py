"""The database and the broker that the environment names: are they there, and a part of each for one check alone.

A check never touches what is in them already: it gets a database beside the one named, and a queue of its own.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from celery.events.event import get_exchange
from django.db import DatabaseError, connections
from kombu import Exchange, Queue

from customer_ops.celery import app
from customer_ops.demo.place import CannotStart

CHECKED = "CUSTOMER_OPS_DEMO_DATABASE"
LONGEST_NAME = 63
WAIT_SECONDS = 5


def require() -> None:
    """Refuse a database or broker that is named and away, before anything is started."""
    if os.environ.get("DATABASE_URL"):
        try:
            connections["default"].ensure_connection()
        except DatabaseError as error:
            raise CannotStart(f"the database that DATABASE_URL names cannot be used: {_line(error)}") from None
        finally:
            connections.close_all()
    if os.environ.get("CELERY_BROKER_URL"):
        try:
            with app.connection_for_write(connect_timeout=WAIT_SECONDS) as connection:
                connection.ensure_connection(max_retries=1, timeout=WAIT_SECONDS)
        except Exception as error:  # noqa: BLE001 - each transport fails in its own way
            raise CannotStart(f"the broker that CELERY_BROKER_URL names cannot be used: {_line(error)}") from None


def own() -> dict[str, str]:
    """The environment that names the check's own database and queue. Nothing is created yet."""
    url, mine = os.environ.get("DATABASE_URL", ""), f"_demo_check_{os.getpid()}"
    queue = {"CELERY_TASK_DEFAULT_QUEUE": mine.strip("_")}
    if not url.startswith(("postgres://", "postgresql://")):
        return {"DATABASE_URL": "", **queue}
    parts = urlsplit(url)
    name = _name(url)[: LONGEST_NAME - len(mine)] + mine
    return {"DATABASE_URL": urlunsplit(parts._replace(path=f"/{quote(name, safe='')}")), CHECKED: url, **queue}


@contextlib.contextmanager
def lent() -> Iterator[None]:
    """Create the check's own database for the block; drop it and the check's queue after that."""
    url = os.environ.get(CHECKED, "")
    try:
        if url:
            _execute(url, f"CREATE DATABASE {_quoted()}")
        yield
    finally:
        _delete_queues()
        if url:
            connections.close_all()
            _execute(url, f"DROP DATABASE IF EXISTS {_quoted()} WITH (FORCE)")


def _delete_queues() -> None:
    """Take the check's own queues out of the broker: of its tasks, and what killed workers and Flower left."""
    name, control = app.conf.task_default_queue, f"{app.conf.control_exchange}.pidbox"
    with contextlib.suppress(Exception), app.connection_for_write(connect_timeout=WAIT_SECONDS) as connection:
        channel = connection.default_channel
        _delete(Queue(name, Exchange(name), routing_key=name), channel)
        for exchange in (get_exchange(connection, app.conf.event_exchange), Exchange(control, type="fanout")):
            for key, _pattern, queue in getattr(channel, "get_table", _no_table)(exchange.name):
                _delete(Queue(queue, exchange, routing_key=key, auto_delete=True), channel)


def _delete(queue: Queue, channel: Any) -> None:
    bound = queue(channel)
    bound.declare()  # kombu takes back only those bindings that this connection knows
    bound.delete()


def _no_table(_exchange: str) -> list[tuple[str, str, str]]:
    """RabbitMQ keeps its own, and deletes such queues with the connections of their readers."""
    return []


def _execute(url: str, statement: str) -> None:
    import psycopg2

    try:
        connection = psycopg2.connect(url, connect_timeout=WAIT_SECONDS)
    except psycopg2.OperationalError as error:
        raise CannotStart(f"the database that DATABASE_URL names cannot be used: {_line(error)}") from None
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
    except psycopg2.Error as error:
        raise CannotStart(f"a check needs a database of its own, and {statement} failed: {_line(error)}") from None
    finally:
        connection.close()


def _name(url: str) -> str:
    return unquote(urlsplit(url).path.removeprefix("/"))


def _quoted() -> str:
    return '"' + _name(os.environ["DATABASE_URL"]).replace('"', '""') + '"'


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
