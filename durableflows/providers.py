"""What a provider takes now: its limits, and who waits for it. Its breaker is `provider_state`'s.

`admit` stands before each send, in the ledger's transaction, and locks the provider's row last: run, step, effect,
provider. What is under way, sent or repeated is counted from the ledger's own rows, so nothing has to be given back: a
send that is answered, or can no longer arrive, takes no place any more.
Source: design, section 5; specification S3.12; R12.
"""

from datetime import datetime, timedelta
from random import SystemRandom

from django.db.models import Count, Q, QuerySet

from durableflows import clock, provider_state
from durableflows.conf import settings
from durableflows.core import breaker as breakers
from durableflows.core import log_lines, rates
from durableflows.core.breaker import BreakerState, Gate
from durableflows.core.outcomes import Held
from durableflows.core.rates import HeldFor, Limits
from durableflows.core.states import EffectState, StepState
from durableflows.errors import EffectOpen
from durableflows.models import EffectSend, SideEffect, StepRun
from durableflows.models.step import GOES_ON
from durableflows.transactions import database

logger = log_lines.logger("durableflows.providers")

LOOK_AGAIN_SECONDS = 60.0
"""A step that waits for a provider looks again by itself after this; a sweep lets it go on earlier when it may."""
PAUSED_SECONDS = 600.0
"""The same for a provider that a person must resume."""
SPREAD_SECONDS = 30.0
"""What waits together does not look again together."""
GRACE_SECONDS = 30.0
"""Who was told to go on and did not come for so long holds up nobody behind."""
IN_LINE = (HeldFor.RATE, HeldFor.ROOM, HeldFor.BREAKER)

_random = SystemRandom()


class Pass:
    """A send may leave: the moment that counts for it, and what it is to its provider."""

    __slots__ = ("is_probe", "is_repeat", "now")

    def __init__(self, now: datetime, *, is_repeat: bool = False, is_probe: bool = False) -> None:
        self.now, self.is_repeat, self.is_probe = now, is_repeat, is_probe


def admit(
    step_locked: StepRun, row: SideEffect, breaker: breakers.Breaker, timeout_seconds: float, *, now: datetime
) -> Pass:
    """Let a send through to its provider, or end the attempt: it waits, and nothing is written or charged.

    breaker          as `look` has read it: a first send to a provider that is closed and has no limits asks no more
    Writes / Locks   the provider's row, last, when its sends are counted, for a repeat, and for a probe
    Raises           EffectOpen with `Held`
    Crash            before the commit no place is taken; after it the send is DISPATCHED, and its row is the place
    """
    limits = settings().limits_of(row.provider)
    is_repeat = row.send_count > 0 or row.replaces_id is not None
    passed = Pass(now, is_repeat=is_repeat)
    _refuse(_closed_to(breaker, now))
    is_plain = breaker.state is BreakerState.CLOSED and not (limits.is_counted or is_repeat or row.turn_key)
    if not is_plain:
        locked = provider_state.lock(row.provider)
        now = clock.now()  # read after the lock: places are counted in the order in which they are taken
        passed = Pass(now, is_repeat=is_repeat, is_probe=breakers.gate(provider_state.value(locked), now) is Gate.PROBE)
        _refuse(_closed_to(provider_state.value(locked), now))
        own = Q(pk=row.pk)
        _refuse(_without_room(step_locked, row.provider, limits, row.turn_key, now, own=own, is_repeat=is_repeat))
        if passed.is_probe:
            provider_state.take_probe(locked, step_locked.lease_token, now, timeout_seconds)
    if step_locked.held_by:
        _end_wait(step_locked, now)
    return passed


def _refuse(held: Held | None) -> None:
    if held is not None:
        raise EffectOpen(held.reason, outcome=held)


def still_held(step_locked: StepRun, now: datetime) -> bool:
    """Leave a step waiting whose provider still takes nothing of it: no attempt begins, nothing is charged (P7)."""
    step = step_locked
    if not step.held_by:
        return False
    held = _closed_to(provider_state.read(step.held_by), now) or _without_room(
        step,
        step.held_by,
        settings().limits_of(step.held_by),
        step.held_key,
        now,
        own=Q(step=step),
        is_repeat=step.held_for == HeldFor.REPEATS,
    )
    if held is None:
        return False
    step.held_for, step.retry_reason, step.wake_at = held.held_for, held.reason[:300], held.until
    step.sent_at, step.sends = None, 0
    step.resend_at = held.until + timedelta(seconds=settings().PUBLISH_SECONDS)
    step.store("held_for", "retry_reason", "wake_at", "sent_at", "sends", "resend_at")
    return True


def _closed_to(breaker: breakers.Breaker, now: datetime) -> Held | None:
    """What the breaker makes of a send now; None: it may try."""
    if breakers.gate(breaker, now) is not Gate.HOLD:
        return None
    return paused(breaker, now)


def paused(breaker: breakers.Breaker, now: datetime) -> Held:
    """A wait for a provider that is left alone."""
    is_for_person = breaker.state is BreakerState.PAUSED
    by = f" by {breaker.changed_by}" if breaker.changed_by else ""
    word = "paused" if is_for_person else "left alone"
    reason = f"waits for {breaker.provider}: {word}{by}, {breaker.reason}"
    pause = PAUSED_SECONDS if is_for_person else LOOK_AGAIN_SECONDS
    until = breakers.held_until(breaker, now) + timedelta(seconds=pause + SPREAD_SECONDS * _random.random())
    return Held(breaker.provider, HeldFor.BREAKER, until, reason)


def is_left_alone(provider: str, now: datetime) -> bool:
    """Does nothing leave for it now, lookups neither?"""
    return breakers.gate(provider_state.read(provider), now) is Gate.HOLD


def held_by_credentials(provider: str) -> Held:
    """The wait of the very attempt that learned that the provider does not take our credentials."""
    return paused(provider_state.read(provider), clock.now())


def _without_room(
    step: StepRun, provider: str, limits: Limits, key: str, now: datetime, *, own: Q, is_repeat: bool
) -> Held | None:
    """Why one more send does not fit, or None. Exact under the provider's lock, a good guess without it."""
    later = now + timedelta(seconds=LOOK_AGAIN_SECONDS + SPREAD_SECONDS * _random.random())
    if key:
        others = under_way(provider, now).exclude(own).filter(turn_key=key)
        if others.exists() or _ahead(step, provider, now).filter(held_key=key).exists():
            text = f"waits for {provider}: another request for {key} is under way"
            return Held(provider, HeldFor.TURN, later, text, key)
    if is_repeat:
        left = rates.repeats_left(limits, *recent(provider, now))
        if left == 0 or _ahead(step, provider, now).filter(held_for=HeldFor.REPEATS)[:left].count() >= left:
            until = now + rates.REPEATS_WINDOW * (1 + _random.random())
            text = f"waits for {provider}: many of its requests are repeats, and these are put off"
            return Held(provider, HeldFor.REPEATS, until, text, key)
    return _over_limits(step, provider, limits, key, now, own, later) if limits.is_counted else None


def _over_limits(
    step: StepRun, provider: str, limits: Limits, key: str, now: datetime, own: Q, later: datetime
) -> Held | None:
    ahead = _ahead(step, provider, now).filter(held_for__in=[str(kind) for kind in IN_LINE]).count()
    for count, span in limits.rates:
        place = rates.deciding_place(count, ahead)
        deciding = (
            None if place is None else sends_within(provider, span, now).order_by("-started_at")[place : place + 1]
        )
        began = deciding.values_list("started_at", flat=True).first() if deciding is not None else None
        until = rates.rate_full_until(count, span, ahead, began, now)
        if until is not None:
            unit = "second" if span.total_seconds() == 1 else "minute"
            text = f"waits for {provider}: it takes {count} requests a {unit}"
            return Held(provider, HeldFor.RATE, until, text, key)
    if limits.at_once is not None:
        busy = under_way(provider, now).exclude(own).count()
        if busy + ahead >= limits.at_once:
            text = f"waits for {provider}: it takes {limits.at_once} requests at a time, and so many are under way"
            return Held(provider, HeldFor.ROOM, later, text, key)
    return None


def under_way(provider: str, now: datetime) -> QuerySet[SideEffect]:
    """Effects of which a request may be at the provider: sent and not answered, or in doubt within the settle time.

    A place is not kept longer than that: what is in doubt may have happened, but no request of it can be under way.
    """
    rows = SideEffect.objects.using(database()).filter(provider=provider)
    flying = Q(state=EffectState.UNKNOWN, settles_at__gt=now)
    return rows.filter(Q(state=EffectState.DISPATCHED) | flying)


def sends_within(provider: str, span: timedelta, now: datetime) -> QuerySet[EffectSend]:
    """The provider's sends of the last such span. What is to come in more than that was before a clock was set back."""
    sends = EffectSend.objects.using(database()).filter(provider=provider)
    return sends.filter(started_at__gt=now - span, started_at__lt=now + span)


def recent(provider: str, now: datetime) -> tuple[int, int]:
    """First sends and repeats of the last REPEATS_WINDOW."""
    sends = sends_within(provider, rates.REPEATS_WINDOW, now).order_by()
    counted = sends.aggregate(
        firsts=Count("pk", filter=Q(is_repeat=False)), repeats=Count("pk", filter=Q(is_repeat=True))
    )
    return counted["firsts"], counted["repeats"]


def in_line(provider: str, now: datetime) -> QuerySet[StepRun]:
    """Steps that wait for the provider, longest first. Who was told to go on and has not come is not waited for."""
    steps = StepRun.objects.using(database()).filter(GOES_ON, state=StepState.READY, held_by=provider)
    since = now - timedelta(seconds=GRACE_SECONDS)
    return steps.filter(Q(wake_at__isnull=True) | Q(wake_at__gte=since)).order_by("held_since", "id")


def _ahead(step: StepRun, provider: str, now: datetime) -> QuerySet[StepRun]:
    """Who waits longer than this step; all that wait, when it has only just come."""
    others = in_line(provider, now).exclude(pk=step.pk)
    if step.held_by != provider or step.held_since is None:
        return others
    return others.filter(Q(held_since__lt=step.held_since) | Q(held_since=step.held_since, pk__lt=step.pk))


def _end_wait(step: StepRun, now: datetime) -> None:
    """Take a step out of the line. The time that it stood there is not time in which it was tried (P7)."""
    if step.tries_since is not None and step.held_since is not None:
        step.tries_since = min(now, step.tries_since + max(timedelta(0), now - step.held_since))
    step.held_by = step.held_for = step.held_key = ""
    step.held_since = None
    step.store("tries_since", "held_by", "held_for", "held_key", "held_since")
