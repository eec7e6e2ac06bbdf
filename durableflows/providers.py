"""What a provider takes now: its breaker, its limits, and who waits for it. The only writer of `Breaker`.

`admit` stands before each send, `heard` behind each answer; both run in the ledger's transactions, and lock the
provider's row last: run, step, effect, provider. What is under way, sent or repeated is counted from the ledger's own
rows, so nothing has to be given back: a send that is answered, or can no longer arrive, takes no place any more.
Source: design, section 5; specification S3.12; R12.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from random import SystemRandom
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from durableflows import clock, journal, signals
from durableflows.conf import settings
from durableflows.core import breaker as breakers
from durableflows.core import log_lines, rates
from durableflows.core.breaker import BreakerState, Gate, Health
from durableflows.core.definition import SEND_BY_SECONDS
from durableflows.core.outcomes import Answer, AnswerKind, Held
from durableflows.core.rates import HeldFor, Limits
from durableflows.core.states import EffectState, StepState
from durableflows.errors import EffectOpen
from durableflows.models import Breaker, BreakerChange, EffectSend, SideEffect, StepRun, WorkflowRun
from durableflows.models.compiled import Question
from durableflows.models.step import GOES_ON
from durableflows.transactions import after_commit, database

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


def look(provider: str) -> tuple[datetime, breakers.Breaker]:
    """The time, and the provider's breaker, without a lock: by one round trip where the database is the clock."""
    if not clock.may_be_asked_along():
        return clock.now(), read(provider)
    now, found = clock.now_and(_LOOK, [provider])
    return now, breakers.Breaker(provider) if found is None else _value(Breaker.from_db(database(), _COLUMNS, found))


_COLUMNS = [field.attname for field in Breaker._meta.concrete_fields]
_LOOK = f"SELECT {', '.join(_COLUMNS)} FROM {Breaker._meta.db_table} WHERE provider = %s"  # noqa: S608 - our own names


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
        locked = _lock(row.provider)
        now = clock.now()  # read after the lock: places are counted in the order in which they are taken
        passed = Pass(now, is_repeat=is_repeat, is_probe=breakers.gate(_value(locked), now) is Gate.PROBE)
        _refuse(_closed_to(_value(locked), now))
        own = Q(pk=row.pk)
        _refuse(_without_room(step_locked, row.provider, limits, row.turn_key, now, own=own, is_repeat=is_repeat))
        if passed.is_probe:
            _take_probe(locked, step_locked.lease_token, now, timeout_seconds)
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
    held = _closed_to(read(step.held_by), now) or _without_room(
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
    return breakers.gate(read(provider), now) is Gate.HOLD


def held_by_credentials(provider: str) -> Held:
    """The wait of the very attempt that learned that the provider does not take our credentials."""
    return paused(read(provider), clock.now())


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


def heard(run_locked: WorkflowRun, step: StepRun, send: EffectSend, answer: Answer, now: datetime) -> None:
    """Let an answer speak about its provider's health. Nothing is read for an answer that is well.

    Writes / Locks   the provider's row, after run, step and effect; RunEvent, and in memory the run's journal fields
    """
    if send.kind != "send" or not send.provider:
        return
    if answer.kind is AnswerKind.CREDENTIALS:
        _credentials_refused(run_locked, step, send, answer, now)
    elif send.is_probe:
        _probe_answered(run_locked, step, send, Health(answer.health), now)
    elif answer.health == Health.FAILED:
        _failed(run_locked, step, send, answer, now)


def _failed(run: WorkflowRun, step: StepRun, send: EffectSend, answer: Answer, now: datetime) -> None:
    limits = settings().limits_of(send.provider)
    wanted = limits.failures_in_a_row
    if wanted is None or read(send.provider).state is not BreakerState.CLOSED:
        return
    row = _lock(send.provider)  # two that fail at once: the second sees the first
    breaker = _value(row)
    if breaker.state is not BreakerState.CLOSED or not breakers.counts(breaker, send.started_at, now):
        return
    if not breakers.has_tripped(_newest(send.provider, breaker, wanted, now), wanted):
        return
    row.failures, row.opened_at = wanted, now
    row.open_until = now + timedelta(seconds=limits.cool_down_seconds)
    _move(row, BreakerState.OPEN, now, reason=f"after {wanted} failures in a row{_kind_of(answer)}"[:500])
    _tell_run(run, step, row, now)


def _newest(provider: str, breaker: breakers.Breaker, count: int, now: datetime) -> list[Health]:
    """What the newest answered sends said, since the breaker last changed; those that say nothing are left out."""
    since = breakers.counted_from(breaker, now)
    sends = EffectSend.objects.using(database()).filter(provider=provider, started_at__lte=now)
    sends = sends.exclude(health=Health.UNTOLD)
    if since is not None:
        sends = sends.filter(started_at__gte=since)
    newest = sends.order_by("-started_at").values_list("health", flat=True)[:count]
    return [Health(health) for health in newest]


def _take_probe(row: Breaker, token: UUID | None, now: datetime, timeout_seconds: float) -> None:
    """Let this send, and no other in any process, try whether the provider is back, until it must have an answer."""
    must_end = SEND_BY_SECONDS + timeout_seconds + settings().LEASE_MARGIN_SECONDS
    row.probe_token, row.probe_until = token, now + timedelta(seconds=must_end)
    row.state, row.changed_at = str(BreakerState.HALF_OPEN), now
    row.save(using=database(), update_fields=["state", "changed_at", "probe_token", "probe_until"])
    logger.info("%s: one request tries whether it is back", row.provider)


def _probe_answered(run: WorkflowRun, step: StepRun, send: EffectSend, health: Health, now: datetime) -> None:
    row = _lock(send.provider)
    if row.state != BreakerState.HALF_OPEN or row.probe_token != send.lease_token:
        return  # its place was given to another one, or a person has decided
    cool_down = settings().limits_of(send.provider).cool_down_seconds
    state, row.open_until = breakers.after_probe(health, now, cool_down)
    if state is BreakerState.OPEN:
        row.state, row.changed_at, row.probe_token, row.probe_until = str(state), now, None, None
        row.save(using=database(), update_fields=["state", "changed_at", "open_until", "probe_token", "probe_until"])
        return
    row.failures, row.opened_at = 0, None
    _move(row, state, now, reason="a request that tried was answered")
    _tell_run(run, step, row, now)


def _credentials_refused(run: WorkflowRun, step: StepRun, send: EffectSend, answer: Answer, now: datetime) -> None:
    """Pause the provider until a person resumes it, and say so once, however many runs learn it."""
    row = _lock(send.provider)
    if row.state == BreakerState.PAUSED or not breakers.counts(_value(row), send.started_at, now):
        return
    row.opened_at = now
    _move(row, BreakerState.PAUSED, now, reason="it does not take our credentials")
    _tell_run(run, step, row, now)
    text = f": {answer.error.text}" if answer.error else ""
    run.alert, run.alert_at = f"{row.provider} is paused: {row.reason}{text}"[:500], now


def _kind_of(answer: Answer) -> str:
    """The kind of an answer's error, without its words: every tenant's people read why a provider is left alone."""
    return f", the last a {answer.error.error_class.rpartition('.')[2]}" if answer.error else ""


def change_by_hand(provider: str, state: BreakerState, *, by: str, reason: str, now: datetime) -> bool:
    """Pause or resume a provider for a person. False: it was so already. The caller owns the transaction."""
    row = _lock(provider)
    if row.state == state:
        return False
    row.failures = 0
    row.opened_at = now if state is BreakerState.PAUSED else None
    _move(row, state, now, reason=reason, by=by)
    return True


def _move(row: Breaker, state: BreakerState, now: datetime, *, reason: str, by: str = "") -> None:
    row.state, row.changed_at, row.reason, row.changed_by = str(state), now, reason, by
    row.probe_token = row.probe_until = None
    if state is not BreakerState.OPEN:
        row.open_until = None
    row.save(using=database())
    BreakerChange(provider=row.provider, state=row.state, at=now, actor_name=by, reason=reason).save(using=database())
    after_commit(partial(_tell, row.provider, row.state, reason, now, by), f"the telling about provider {row.provider}")


def _tell(provider: str, state: str, reason: str, at: datetime, by: str) -> None:
    level = logging.INFO if state == BreakerState.CLOSED else logging.ERROR
    logger.log(level, "provider %s is %s%s: %s", provider, state, f" by {by}" if by else "", reason)
    signals.provider_changed.send_robust(
        sender=Breaker, provider=provider, state=state, reason=reason, at=at, actor_name=by
    )


def _tell_run(run: WorkflowRun, step: StepRun, row: Breaker, now: datetime) -> None:
    kinds = {BreakerState.CLOSED: "provider.resumed", BreakerState.OPEN: "provider.left_alone"}
    kind = kinds.get(BreakerState(row.state), "provider.paused")
    journal.record(run, kind, at=now, step=step, data={"provider": row.provider, "reason": row.reason})


def read(provider: str) -> breakers.Breaker:
    """The provider's breaker, without a lock. No row: closed."""
    for values in _BREAKER.answers(database(), provider):
        return _value(Breaker.from_db(database(), _COLUMNS, values))
    return breakers.Breaker(provider)


_BREAKER = Question(
    lambda alias, provider: Breaker.objects.using(alias).filter(pk=provider).values_list(*_COLUMNS), "(a provider)"
)


def read_all(names: Iterable[str] | None = None) -> dict[str, breakers.Breaker]:
    """The breakers of these providers, or of all that have ever had one."""
    rows = Breaker.objects.using(database()).order_by("provider")
    if names is not None:
        rows = rows.filter(pk__in=list(names))
    return {row.provider: _value(row) for row in rows}


def _value(row: Breaker) -> breakers.Breaker:
    return breakers.Breaker(
        provider=row.provider,
        state=BreakerState(row.state),
        failures=row.failures,
        changed_at=row.changed_at,
        open_until=row.open_until,
        probe_until=row.probe_until,
        changed_by=row.changed_by,
        reason=row.reason,
        since=row.opened_at,
    )


def _lock(provider: str) -> Breaker:
    """Lock the provider's row, last of all; make it when it is the first time."""
    rows = Breaker.objects.using(database()).select_for_update(no_key=True)
    row = rows.filter(pk=provider).first()
    if row is None:
        Breaker.objects.using(database()).bulk_create([Breaker(provider=provider)], ignore_conflicts=True)
        row = rows.get(pk=provider)
    return row
