"""The `DURABLEFLOWS` setting as one typed, frozen value. Read at use through `settings()`; unknown keys are errors."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, get_type_hints

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.encoding import force_bytes

from durableflows.core import rates, run_links
from durableflows.core.rates import Limits
from durableflows.core.wording import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every key of `DURABLEFLOWS`, with its unit and default."""

    DATABASE: str = "default"
    """Alias of the database that holds the engine's rows."""
    STALE_SECONDS: float = 30.0
    """A worker whose heartbeat is older than this is treated as dead. At least three times HEARTBEAT_SECONDS."""
    SWEEP_SECONDS: float = 1.0
    """Pause between two sweeps of a ticker. One does all that is due; the others free leases of dead workers."""
    HEARTBEAT_SECONDS: float = 2.0
    """Pause between two heartbeats of a ticker."""
    LEASE_MARGIN_SECONDS: float = 15.0
    """A lease ends this long after its step's own time limit, whatever the heartbeat says."""
    RESEND_SECONDS: float = 15.0
    """A step that was sent and not claimed is sent again after this; doubled each time up to RESEND_CAP_SECONDS."""
    RESEND_CAP_SECONDS: float = 600.0
    """Longest pause between two sends of a step that nobody claims."""
    PUBLISH_SECONDS: float = 2.0
    """A publish to the broker may take this long; its failure is kept and the step sent again."""
    UNKNOWN_WORKFLOW_SECONDS: float = 900.0
    """A run whose workflow or version no live worker has known for this long is parked."""
    LOOKUP_SECONDS: float = 5.0
    """First pause between two lookups of an effect in doubt; doubled each time up to LOOKUP_CAP_SECONDS."""
    LOOKUP_CAP_SECONDS: float = 600.0
    """Longest pause between two lookups of an effect in doubt."""
    AUDIT_SECONDS: float = 86400.0
    """An effect that was found absent is looked up once more after this."""
    MAX_STATE_BYTES: int = 262144
    """Largest checkpoint. Keep larger values elsewhere, and a reference in the state."""
    MAX_EVENT_BYTES: int = 262144
    """Largest body of an event that a provider sends; a larger one is refused."""
    MAX_ARTIFACT_BYTES: int = 104857600
    """Largest artifact that a step may keep."""
    ARTIFACT_STORAGE: str = "default"
    """Alias of Django's STORAGES where artifacts are kept."""
    ARCHIVE_STORAGE: str = ""
    """Alias of Django's STORAGES where `cleanup` keeps runs before it removes them. Empty: nowhere, unless `--archive`
    says where."""
    SECRETS: str = ""
    """Callable(name) that gives a secret's value as text, for `run.secret`. Empty: steps can look none up."""
    REFUSE_SECRETS: bool = True
    """Refuse to store what looks like a key or token: in states, results, items, arguments, facts and signals; in
    states also a text in a field that is called a password or a key."""
    TICKER: bool = True
    """Workers start a ticker. Without it, run `manage.py durableflows ticker` as a process of its own."""
    HEALTH_LATE_SECONDS: float = 120.0
    """What should go on by itself and is later than this makes `/durableflows/health/` red."""
    HEALTH_QUEUE_SECONDS: float = 300.0
    """A step that was sent and waits for a worker for longer than this makes `/durableflows/health/` red."""
    HEALTH_WAIT_SECONDS: float = 259200.0
    """A request that nobody has answered for longer than this makes `/durableflows/health/` red."""
    MONITOR_TOKEN: str = ""
    """Who says it as `Authorization: Bearer` may read metrics and health. Empty: only people who may operate runs."""
    PROVIDERS: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Provider -> its limits: see [protect a provider](../howto/protect-a-provider.md). One that is not named has the
    defaults: no rates, a breaker, and a limit on repeats."""
    UNANSWERABLE_SECONDS: float = 30.0
    """Pause between two looks at whether somebody could answer each open request."""
    TENANTS_OF: str = ""
    """Callable(user) that says in which tenants a person acts: None for all, or a collection of names. Empty: in '',
    superusers in all."""
    CLASSIFIERS: Sequence[str] = ()
    """Callables(error) that say by one of our exceptions what an exception of a step or effect means, or None. Asked in
    this order, before the engine's own table."""
    WATCHERS: Sequence[str] = ()
    """Classes that follow runs from outside: [traces](../howto/trace-with-opentelemetry.md),
    [Sentry](../howto/report-to-sentry.md), or your own `durableflows.watching.Watcher`. Empty: nothing is imported."""
    NOTIFIERS: Sequence[str] = ()
    """Classes that tell people about requests, by their dotted paths: see [notify people](../howto/notify-people.md).
    Empty: nobody is told."""
    BASE_URL: str = ""
    """Where people reach this project, such as "https://desk.example.com": links in notices begin with it. Empty:
    notices have none."""
    RUN_LINKS: Mapping[str, str] = field(default_factory=dict)
    """Words -> address, shown on a run's page to who may see its values: `{run}`, `{workflow}` and `{trace}` stand for
    its own, such as "https://jaeger.example.com/trace/{trace}". One with `{trace}` is left out where there is none."""
    STATE_KEYS: Mapping[str, str] = field(default_factory=dict)
    """Key id -> secret for the seals on state; the first one seals, all of them verify. Empty: from SECRET_KEY, and
    SECRET_KEY_FALLBACKS verify."""

    def limits_of(self, provider: str) -> Limits:
        """What one provider is given at most."""
        given = self.PROVIDERS.get(provider)
        return DEFAULT_LIMITS if given is None else Limits(**given)

    def state_keys(self) -> dict[str, bytes]:
        """Key id -> key bytes, the sealing key first."""
        if self.STATE_KEYS:
            return {name: _key(name, secret) for name, secret in self.STATE_KEYS.items()}
        secrets = [django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS]
        return dict(map(from_secret_key, secrets))


DEFAULT_LIMITS = Limits()
DERIVED = "secret-key-"
LONGEST_KEY_ID = 40
LEAST_BEATS = 3
"""Heartbeats that a worker may miss before it is called dead."""


def from_secret_key(secret: str | bytes) -> tuple[str, bytes]:
    """Id and bytes of the key that comes from a SECRET_KEY. In STATE_KEYS such an id stands for the same key."""
    key = hashlib.sha256(b"durableflows.state:" + force_bytes(secret)).digest()
    return DERIVED + hashlib.sha256(b"durableflows.id:" + key).hexdigest()[:8], key


def _key(name: str, secret: str) -> bytes:
    return from_secret_key(secret)[1] if name.startswith(DERIVED) else secret.encode()


def problems(given: Mapping[str, Any]) -> list[str]:
    """Say in words what is wrong with a `DURABLEFLOWS` dict."""
    hints = get_type_hints(Settings)
    found = [f"{key!r} is not a setting{did_you_mean(key, hints)}" for key in given if key not in hints]
    names = [field_.name for field_ in dataclasses.fields(Settings) if field_.name in given]
    found += [
        f"{name!r} is {given[name]!r}, it should be {_wanted(hints[name])}"
        for name in names
        if not _fits(given[name], hints[name])
    ]
    return found or [
        *_beat_problems(given),
        *_key_problems(given.get("STATE_KEYS", {})),
        *_provider_problems(given.get("PROVIDERS", {})),
        *_link_problems(given.get("RUN_LINKS", {})),
    ]


def _beat_problems(given: Mapping[str, Any]) -> list[str]:
    defaults = Settings()
    stale = given.get("STALE_SECONDS", defaults.STALE_SECONDS)
    beat = given.get("HEARTBEAT_SECONDS", defaults.HEARTBEAT_SECONDS)
    if stale >= LEAST_BEATS * beat:
        return []
    what = f"'STALE_SECONDS' is {stale:g} and 'HEARTBEAT_SECONDS' {beat:g}: living workers would be taken for dead"
    return [f"{what}. Let the first be at least {LEAST_BEATS} times the second"]


def _link_problems(links: Mapping[str, str]) -> list[str]:
    return [
        f"'RUN_LINKS': {words!r}: {text}" for words, address in links.items() for text in run_links.problems(address)
    ]


def _provider_problems(providers: Mapping[str, Any]) -> list[str]:
    return [f"'PROVIDERS': {name!r}: {text}" for name, limits in providers.items() for text in rates.problems(limits)]


def _key_problems(keys: Mapping[str, str]) -> list[str]:
    """What is wrong with ids and secrets; never shows a secret."""
    return [
        f"'STATE_KEYS': the id {name!r} and its secret need something in them, and the id {LONGEST_KEY_ID} characters "
        "at most"
        for name, secret in keys.items()
        if not secret or not 0 < len(name) <= LONGEST_KEY_ID
    ]


_OF_DICTS = Mapping[str, Mapping[str, Any]]


def _fits(value: object, wanted: Any) -> bool:
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    if wanted is bool or wanted is str:
        return isinstance(value, wanted)
    if wanted == Sequence[str]:
        return isinstance(value, list | tuple) and all(isinstance(item, str) and item for item in value)
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        return False
    return all(isinstance(item, Mapping if wanted == _OF_DICTS else str) for item in value.values())


def _wanted(wanted: Any) -> str:
    names = {float: "a number above 0", int: "a whole number above 0", bool: "True or False", str: "a text"}
    names[Sequence[str]] = "a list of texts"
    return names.get(wanted, "a dict of dicts" if wanted == _OF_DICTS else "a dict of texts")


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The project's settings over the defaults. Raises ImproperlyConfigured naming every wrong key."""
    given = getattr(django_settings, "DURABLEFLOWS", {})
    wrong = problems(given)
    if wrong:
        raise ImproperlyConfigured("DURABLEFLOWS: " + "; ".join(wrong))
    return Settings(**given)


def _forget(*, setting: str, **_: object) -> None:
    if setting in ("DURABLEFLOWS", "SECRET_KEY"):
        settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="durableflows.conf")
