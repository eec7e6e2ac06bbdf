"""Reads the two addresses a deployment is told by: DATABASE_URL and CELERY_BROKER_URL.

Owns the grammar of both and the embedded defaults (SQLite and a folder as broker). Settings modules call it while
Django starts, so it imports nothing of the project. It never connects to anything, and its errors hold no password.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from kombu.transport import TRANSPORT_ALIASES

ALIAS = "customer_ops.broker:Transport"

SQLITE_OPTIONS = {
    # IMMEDIATE: a block that reads and then writes holds the write lock from its start; deferred ones fail with
    # "database is locked". SQLite's waiting is not fair, so the time-out stays long.
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    # FULL, because WAL with NORMAL may lose the last commits on a power cut: an effect would go out without its intent.
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
}

REDIS_OPTIONS = {
    "visibility_timeout": 3600,
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    "socket_connect_timeout": 2.0,
}

FILESYSTEM_POLLING_SECONDS = 0.05


@contextmanager
def said_in_a_line() -> Iterator[None]:
    """Let an address in the block that cannot be read end the program with one line on stderr, when nobody catches it.

    manage.py, Celery and web servers each let it through, and would print fifty lines of Django's inside. With
    `--traceback` they do.
    """
    try:
        yield
    except ImproperlyConfigured as wrong:
        if "--traceback" not in sys.argv:
            _print_only(wrong)
        raise


def _print_only(wrong: ImproperlyConfigured) -> None:
    before = sys.excepthook

    def print_it(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if error is wrong:
            sys.stderr.write(f"{error}\n")
        else:
            before(kind, error, trace)

    sys.excepthook = print_it


def read_database_url(url: str, *, folder: Path) -> dict[str, dict[str, Any]]:
    """Return Django's DATABASES for a URL; an empty one means an SQLite file in `folder`, which is then created.

    postgresql://user:password@host:port/name?sslmode=require · sqlite:///relative.db · sqlite:////absolute.db · sqlite://:memory:
    """
    if not url:
        folder.mkdir(parents=True, exist_ok=True)
        return {"default": _sqlite(str(folder / "durableflows.sqlite3"))}
    if url in ("sqlite://:memory:", "sqlite://"):
        return {"default": _sqlite(":memory:")}
    parts = _split(url, variable="DATABASE_URL")
    if parts.scheme == "sqlite":
        return {"default": _sqlite(unquote(parts.path.removeprefix("/")))}
    if parts.scheme in ("postgres", "postgresql"):
        return {"default": _postgres(parts)}
    raise ImproperlyConfigured(f"DATABASE_URL starts with {parts.scheme!r}: use postgresql:// or sqlite:///")


def read_broker_url(url: str, *, folder: Path) -> dict[str, Any]:
    """Return Celery's broker settings for a URL; an empty one means `filesystem://` in `folder`, which is then created.

    Any transport that Celery knows is taken; redis and filesystem get the options they need to be safe and quick here.
    """
    url = url or "filesystem://"
    first = url.partition(";")[0]  # several addresses, the next one for when the first is away
    scheme = _split(first, variable="CELERY_BROKER_URL").scheme
    transport = scheme.partition("+")[0]
    if transport not in TRANSPORT_ALIASES and "." not in transport:
        raise ImproperlyConfigured(
            f"CELERY_BROKER_URL starts with {transport!r}: use redis://, amqp:// or another that Celery knows"
        )
    settings: dict[str, Any] = {"broker_url": url, "broker_connection_retry_on_startup": True}
    if scheme == "filesystem":
        TRANSPORT_ALIASES["filesystem"] = ALIAS  # kombu's own may hand a worker half a message
        settings["broker_transport_options"] = _filesystem(folder)
    if scheme in ("redis", "rediss"):
        settings["broker_transport_options"] = dict(REDIS_OPTIONS)
        # Celery 5.7.0 ends the worker when the broker goes away while a message is reserved. Only Redis has the option.
        settings["worker_disable_prefetch"] = True
    return settings


def _split(url: str, *, variable: str) -> SplitResult:
    scheme, mark, _ = url.partition("://")
    if not mark or not scheme:
        raise ImproperlyConfigured(f"{variable} is not an address of the form scheme://…")
    try:
        parts = urlsplit(url)
        _ = parts.port  # the only part that is parsed late
    except ValueError:
        # The text is left out and the cause is cut off: both may hold the password.
        raise ImproperlyConfigured(
            f"{variable}: the host or port cannot be read; escape / @ : # ? in a password as %2F %40 %3A %23 %3F"
        ) from None
    return parts


def _sqlite(name: str) -> dict[str, Any]:
    if not name:
        raise ImproperlyConfigured("DATABASE_URL names no file: sqlite:///relative.db or sqlite:////absolute.db")
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "OPTIONS": dict(SQLITE_OPTIONS)}


def _postgres(parts: SplitResult) -> dict[str, Any]:
    options: dict[str, Any] = {"connect_timeout": "5"} | dict(parse_qsl(parts.query))
    name = unquote(parts.path.removeprefix("/"))
    if not name:
        raise ImproperlyConfigured("DATABASE_URL names no database: postgresql://user:password@host:port/name")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        # A socket folder is written as ?host=/run/postgresql or, escaped, as the host itself.
        "HOST": options.pop("host", "") or unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 60,  # connecting takes longer than a step does; workers keep it by CELERY_DB_REUSE_MAX
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": options,
    }


def _filesystem(folder: Path) -> dict[str, Any]:
    messages, control = folder / "messages", folder / "control"
    for needed in (messages, control):  # the transport creates neither the message folder nor any parent
        needed.mkdir(parents=True, exist_ok=True)
    return {
        "data_folder_in": str(messages),
        "data_folder_out": str(messages),  # the same folder: what one process puts, another gets
        "control_folder": str(control),
        "polling_interval": FILESYSTEM_POLLING_SECONDS,  # kombu's default of a whole second is felt at each step
    }
