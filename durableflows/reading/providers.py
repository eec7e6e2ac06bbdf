"""Providers as the console shows them: how each stands and why, what waits for it, what is in doubt at it. Reads only.

A provider serves all tenants, and who may see runs sees how it stands; steps, effects and requests are counted of the
runs that the person may see.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Min, Q
from django.urls import reverse

from durableflows import provider_state, providers
from durableflows.conf import settings
from durableflows.core.breaker import Breaker, BreakerState
from durableflows.core.rates import Limits
from durableflows.core.states import EffectState
from durableflows.explain_words import plain, when
from durableflows.models import BreakerChange, SideEffect
from durableflows.reading import narrow
from durableflows.reading.standing import span
from durableflows.selectors import Sight
from durableflows.services import providers as service
from durableflows.transactions import database

WORDS: Mapping[str, str] = {"closed": "in use", "open": "left alone", "half-open": "being tried", "paused": "paused"}
TONES: Mapping[str, str] = {"closed": "good", "open": "bad", "half-open": "look", "paused": "look"}
CHANGES_SHOWN = 20
LATELY = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class AtIt:
    """What is at a provider: steps that wait, of how many runs, since when; requests under way; effects in doubt."""

    steps: int = 0
    runs: int = 0
    since: datetime | None = None
    under_way: int = 0
    in_doubt: int = 0


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider in words. `next`: what happens by itself, or who must do something."""

    breaker: Breaker
    word: str
    tone: str
    why: str
    next: str
    limits: list[str]
    waits: str
    count: AtIt
    address: str
    held_address: str
    doubt_address: str


def all_of(sight: Sight, now: datetime) -> list[Provider]:
    """Every provider that effects, settings, rows or waiting steps name; those that take nothing first."""
    breakers, counted = provider_state.read_all(), _counts(sight, now)
    names = sorted(service.declared() | set(breakers) | set(counted))
    found = [_provider(breakers.get(name) or Breaker(name), counted.get(name) or AtIt(), now) for name in names]
    return sorted(found, key=lambda one: one.breaker.state is BreakerState.CLOSED)


def one_of(name: str, sight: Sight, now: datetime) -> Provider:
    """One of them. Raises NotFoundError for a provider that nothing names."""
    service.check_known(name)
    return _provider(provider_state.read(name), _counts(sight, now, name).get(name) or AtIt(), now)


def changes(name: str) -> list[tuple[BreakerChange, str, str]]:
    """What became of it, newest first, with the words and the colour of each state."""
    rows = BreakerChange.objects.using(database()).filter(provider=name)[:CHANGES_SHOWN]
    return [(row, WORDS[row.state], TONES[row.state]) for row in rows]


def sends_lately(name: str, sight: Sight, now: datetime) -> str:
    """What was sent to it in the last minutes, and how it was answered."""
    sends = providers.sends_within(name, LATELY, now).filter(sight.within("effect__run__")).order_by()
    failed, repeats = Q(health="failed"), Q(is_repeat=True)
    found = sends.aggregate(all=Count("pk"), failed=Count("pk", filter=failed), repeats=Count("pk", filter=repeats))
    if not found["all"]:
        return "none"
    return f"{found['all']:,}, of which {found['failed']:,} failed and {found['repeats']:,} were repeats"


def _counts(sight: Sight, now: datetime, name: str = "") -> Mapping[str, AtIt]:
    held, effects = narrow.kept("held", now), SideEffect.objects.using(database()).order_by()
    assert held is not None
    steps = held.rows.filter(sight.within("run__"), **({"held_by": name} if name else {}))
    waiting = steps.values("held_by").annotate(
        steps=Count("pk"), runs=Count("run", distinct=True), since=Min("held_since")
    )
    open_ones = effects.filter(sight.within("run__"), **({"provider": name} if name else {}))
    open_ones = open_ones.filter(state__in=[str(EffectState.DISPATCHED), str(EffectState.UNKNOWN)])
    under_way = Q(state=EffectState.DISPATCHED) | Q(state=EffectState.UNKNOWN, settles_at__gt=now)
    in_doubt = Q(state=EffectState.UNKNOWN) | Q(in_doubt_since__isnull=False)
    at_it = open_ones.values("provider").annotate(
        under_way=Count("pk", filter=under_way), in_doubt=Count("pk", filter=in_doubt)
    )
    found: dict[str, dict[str, Any]] = {}
    for row in (*waiting, *at_it):
        counted: dict[str, Any] = {**row}
        found.setdefault(counted.pop("held_by", "") or counted.pop("provider"), {}).update(counted)
    return {provider: AtIt(**counted) for provider, counted in found.items()}


def _provider(breaker: Breaker, count: AtIt, now: datetime) -> Provider:
    name, state = breaker.provider, str(breaker.state)
    runs = reverse("durableflows:runs")
    return Provider(
        breaker=breaker,
        word=WORDS[state],
        tone=TONES[state],
        why=_why(breaker),
        next=_next(breaker, now),
        limits=list(_limits(settings().limits_of(name))),
        waits=waits(count, now),
        count=count,
        address=reverse("durableflows:provider", args=[name]),
        held_address=f"{runs}?{urlencode({'show': 'held', 'provider': name})}",
        doubt_address=f"{runs}?{urlencode({'show': 'doubt', 'provider': name})}",
    )


def waits(count: AtIt, now: datetime) -> str:
    """How many steps wait for it; "" for none."""
    if not count.steps:
        return ""
    steps, runs = f"{count.steps:,} step{_s(count.steps)}", f"{count.runs:,} run{_s(count.runs)}"
    return f"{steps} of {runs}" + (f", the longest for {span(count.since, now)}" if count.since else "")


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _why(breaker: Breaker) -> str:
    """Who or what has made it so, and why."""
    by = f"by {plain(breaker.changed_by)}" if breaker.changed_by else ""
    return ": ".join(part for part in (by, plain(breaker.reason)) if part)


def _next(breaker: Breaker, now: datetime) -> str:
    match breaker.state:
        case BreakerState.PAUSED:
            return "Nothing leaves for it until somebody resumes it."
        case BreakerState.OPEN if breaker.open_until is not None and breaker.open_until > now:
            return f"Nothing leaves for it; {when(breaker.open_until, now)} one request tries whether it is back."
        case BreakerState.HALF_OPEN if breaker.probe_until is not None and breaker.probe_until > now:
            return (
                f"One request tries whether it is back; it is heard of {when(breaker.probe_until, now)} at the latest."
            )
        case BreakerState.CLOSED:
            return "Requests leave for it."
    return "The next request tries whether it is back."


def _limits(limits: Limits) -> Iterator[str]:
    """What the project's settings say, in words."""
    for count, words in (
        (limits.per_second, "a second"),
        (limits.per_minute, "a minute"),
        (limits.at_once, "at a time"),
    ):
        if count is not None:
            yield f"{count:,} {words}"
    if limits.failures_in_a_row is None:
        yield "only a person stops it"
    else:
        failures = f"{limits.failures_in_a_row} failure{_s(limits.failures_in_a_row)} in a row"
        yield f"left alone for {limits.cool_down_seconds:g} s after {failures}"
    yield f"repeats: {limits.repeats_share:.0%} of the first requests in ten seconds, {limits.repeats_always} always"
