"""What Django's system check says about a project that uses durableflows. Each id is stable and has a cure.

Here are settings and the database; Celery's part is in `checks_celery`, that of effects in `checks_effects`.
"""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core import checks
from django.utils.module_loading import import_string

from durableflows import (
    checks_approvals,
    checks_celery,
    checks_effects,
    checks_notices,
    checks_pages,
    classifiers,
    watching,
)
from durableflows.conf import problems
from durableflows.tenants import load


def register() -> None:
    """Add the checks. Called once, when the app is ready."""
    for check in (
        check_settings,
        check_database,
        *checks_celery.CHECKS,
        *checks_approvals.CHECKS,
        *checks_effects.CHECKS,
        *checks_notices.CHECKS,
        *checks_pages.CHECKS,
    ):
        checks.register(check, "durableflows")


def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """E001: unknown or ill-typed keys in DURABLEFLOWS. E002: its database does not exist. E004: nor TENANTS_OF.

    E005: nor ARTIFACT_STORAGE or ARCHIVE_STORAGE. E006: nor SECRETS. E008: nor one of CLASSIFIERS.
    W016: nor one of WATCHERS.
    """
    given = getattr(django_settings, "DURABLEFLOWS", {})
    found: list[checks.CheckMessage] = [
        checks.Error(f"DURABLEFLOWS: {problem}", hint="See docs/reference/settings.md.", id="durableflows.E001")
        for problem in problems(given)
    ]
    alias = given.get("DATABASE", "default")
    if alias not in django_settings.DATABASES:
        hint = "Name an alias of DATABASES, or leave DATABASE out for 'default'."
        found.append(
            checks.Error(
                f"DURABLEFLOWS names database {alias!r}, which DATABASES lacks", hint=hint, id="durableflows.E002"
            )
        )
    found += [*_tenants(given.get("TENANTS_OF", "")), *_references(given)]
    return [*found, *_classifiers(given.get("CLASSIFIERS", ())), *_watchers(given.get("WATCHERS", ()))]


def _references(given: Mapping[str, Any]) -> Iterator[checks.CheckMessage]:
    """What steps look large values and secrets up by."""
    artifacts, archive = given.get("ARTIFACT_STORAGE", "default"), given.get("ARCHIVE_STORAGE") or "default"
    for alias in sorted({one for one in (artifacts, archive) if isinstance(one, str)} - set(django_settings.STORAGES)):
        hint = "Name an alias of STORAGES. Without ARTIFACT_STORAGE it is 'default', without ARCHIVE_STORAGE none."
        yield checks.Error(
            f"DURABLEFLOWS names storage {alias!r}, which STORAGES lacks", hint=hint, id="durableflows.E005"
        )
    path = given.get("SECRETS", "")
    if isinstance(path, str) and path:
        try:
            is_callable = callable(import_string(path))
        except Exception:  # noqa: BLE001 - importing the project's module can fail in any way
            is_callable = False
        if not is_callable:
            hint = "Name a callable by its dotted path: it takes a secret's name and returns its value as text."
            yield checks.Error(
                f"DURABLEFLOWS names SECRETS {path!r}, which cannot be called", hint=hint, id="durableflows.E006"
            )


def _texts(paths: object) -> list[str]:
    """Those that are paths; what is none is E001."""
    return [path for path in paths if isinstance(path, str) and path] if isinstance(paths, list | tuple) else []


def _watchers(paths: object) -> Iterator[checks.CheckMessage]:
    """W016: who follows runs cannot be loaded, because its library is missing, say. Runs go on without it."""
    for path in _texts(paths):
        try:
            watching.load(path)
        except Exception as error:  # noqa: BLE001 - importing the project's module can fail in any way
            hint = "Install its library (`durableflows[opentelemetry]`, `durableflows[sentry]`), or take it out."
            yield checks.Warning(
                f"DURABLEFLOWS names WATCHERS {path!r}, which cannot be used ({type(error).__name__}: {error})",
                hint=hint,
                id="durableflows.W016",
            )


def _classifiers(paths: object) -> Iterator[checks.CheckMessage]:
    """E008: what says what exceptions mean cannot be called with one."""
    for path in _texts(paths):
        try:
            inspect.signature(classifiers.load(path)).bind(ValueError())
        except Exception as error:  # noqa: BLE001 - importing the project's module can fail in any way
            hint = "Name callables by their dotted paths: each takes an exception, and returns one of ours or None."
            yield checks.Error(
                f"DURABLEFLOWS names CLASSIFIERS {path!r}, which cannot be called ({type(error).__name__}: {error})",
                hint=hint,
                id="durableflows.E008",
            )


def _tenants(path: object) -> list[checks.CheckMessage]:
    if not isinstance(path, str) or not path:  # not a text: E001
        return []
    try:
        load(path)
    except Exception as error:  # noqa: BLE001 - importing the project's module can fail in any way
        hint = "Name a callable by its dotted path: it takes a user, and returns None or a collection of tenant names."
        why = f"{type(error).__name__}: {error}"
        return [
            checks.Error(
                f"DURABLEFLOWS names TENANTS_OF {path!r}, which cannot be called ({why})",
                hint=hint,
                id="durableflows.E004",
            )
        ]
    return []


def check_database(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """What the settings of the engine's database take away from its locks and transactions."""
    alias = getattr(django_settings, "DURABLEFLOWS", {}).get("DATABASE", "default")
    database = django_settings.DATABASES.get(alias, {})
    return [*_locks(database), *_requests(alias, database), *_isolation(alias, database)]


def _locks(database: Mapping[str, Any]) -> Iterator[checks.CheckMessage]:
    """E003: SQLite without BEGIN IMMEDIATE. W001: a database without row locks."""
    engine = str(database.get("ENGINE", ""))
    if engine.endswith("sqlite3"):
        if database.get("OPTIONS", {}).get("transaction_mode") != "IMMEDIATE":
            hint = 'Set OPTIONS = {"transaction_mode": "IMMEDIATE", "timeout": 20}: row locks do nothing on SQLite.'
            yield checks.Error(
                "SQLite transactions are not IMMEDIATE: two workers could take one step",
                hint=hint,
                id="durableflows.E003",
            )
    elif engine and "postgresql" not in engine:
        hint = "Use PostgreSQL. The engine's locks are tested there and on SQLite."
        yield checks.Warning(
            f"{engine} is not a database that durableflows is tested on", hint=hint, id="durableflows.W001"
        )


def _requests(alias: str, database: Mapping[str, Any]) -> Iterator[checks.CheckMessage]:
    """W005: a transaction around each request: what a verb has stored is lost when the view fails after it."""
    if database.get("ATOMIC_REQUESTS"):
        hint = "Unset ATOMIC_REQUESTS, or put @transaction.non_atomic_requests on views that call verbs."
        yield checks.Warning(
            f"ATOMIC_REQUESTS is on for {alias!r}: verbs join the request's transaction, hold locks until it ends, "
            "and are not repeated after a deadlock",
            hint=hint,
            id="durableflows.W005",
        )


def _isolation(alias: str, database: Mapping[str, Any]) -> Iterator[checks.CheckMessage]:
    """W006: an isolation level under which a transaction does not see what was committed while it waited for a lock."""
    if "postgresql" in str(database.get("ENGINE", "")) and not _is_read_committed(database.get("OPTIONS", {})):
        hint = "Leave isolation_level out for READ COMMITTED, or give durableflows a database alias of its own."
        yield checks.Warning(
            f"transactions of {alias!r} are not READ COMMITTED: the engine's fail where they had to wait for a lock, "
            "and are repeated",
            hint=hint,
            id="durableflows.W006",
        )


def _is_read_committed(options: Mapping[str, Any]) -> bool:
    # Needs the driver of PostgreSQL, which a project on SQLite may lack.
    from django.db.backends.postgresql.psycopg_any import IsolationLevel

    if options.get("isolation_level") is not None:
        return bool(options["isolation_level"] == IsolationLevel.READ_COMMITTED)
    given = re.search(r"default_transaction_isolation\s*=\s*\W*(\w+(?:\W+committed)?)", str(options.get("options", "")))
    return given is None or re.sub(r"\W+", " ", given[1].lower()) == "read committed"
