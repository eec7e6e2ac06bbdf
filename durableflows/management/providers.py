"""The verb about a provider: how it stands, and to pause and resume it. Without a name: all of them."""

from argparse import Namespace
from datetime import datetime

from durableflows import api, provider_state
from durableflows.conf import settings
from durableflows.core.breaker import Breaker
from durableflows.errors import InvalidState
from durableflows.explain_words import plain
from durableflows.management import tables
from durableflows.management.operators import person, reason
from durableflows.management.tables import Report
from durableflows.models import BreakerChange
from durableflows.services import providers as service
from durableflows.transactions import database

COLUMNS = ("provider", "state", "since", "open_until", "waiting", "reason")
LIMITS = ("per_second", "per_minute", "at_once", "failures_in_a_row", "cool_down_seconds")
CHANGE_COLUMNS = ("at", "state", "actor", "reason")
CHANGES_SHOWN = 20


def provider(options: Namespace) -> Report:
    """Show, pause or resume."""
    if options.action == "show":
        return _one(options.name) if options.name else _all()
    if not options.name or not options.reason:
        raise InvalidState(f"{options.action}: name the provider, and give --reason WHY, which stays on the record")
    do = api.pause_provider if options.action == "pause" else api.resume_provider
    do(options.name, by=person(options.by), reason=reason(options))
    return _one(options.name)


def _all() -> Report:
    rows = [_row(name) for name in sorted(service.known())]
    return Report(rows, tables.table(rows, COLUMNS) or ["no providers"])


def _one(name: str) -> Report:
    service.check_known(name)
    row = _row(name) | {limit: getattr(settings().limits_of(name), limit) for limit in LIMITS}
    changes = BreakerChange.objects.using(database()).filter(provider=name)[:CHANGES_SHOWN]
    done: list[tables.Row] = [
        {"at": one.at, "state": one.state, "actor": one.actor_name, "reason": one.reason} for one in changes
    ]
    lines = [f"{key}: {_shown(value)}" for key, value in row.items() if value not in (None, "")]
    return Report(row | {"changes": done}, [*lines, *tables.section("changes", tables.table(done, CHANGE_COLUMNS))])


def _row(name: str) -> tables.Row:
    one: Breaker = provider_state.read(name)
    return {
        "provider": name,
        "state": str(one.state),
        "since": one.since,
        "open_until": one.open_until,
        "probe_until": one.probe_until,
        "by": one.changed_by,
        "reason": one.reason,
        "waiting": service.waiting(name),
    }


def _shown(value: object) -> str:
    return tables.local(value) if isinstance(value, datetime) else plain(value)
