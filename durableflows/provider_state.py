"""How a provider stands: its breaker, what opens and closes it, and who is told. The only writer of `Breaker`.

`heard` stands behind each answer, in the ledger's transaction, and locks the provider's row last: run, step, effect,
provider. Source: design, section 5; specification S3.12; R12.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django.db.models import QuerySet

from durableflows import alerts, clock, journal, signals
from durableflows.conf import settings
from durableflows.core import breaker as breakers
from durableflows.core import log_lines
from durableflows.core.breaker import BreakerState, Health
from durableflows.core.definition import SEND_BY_SECONDS
from durableflows.core.outcomes import Answer, AnswerKind
from durableflows.errors import TooLate
from durableflows.models import Breaker, BreakerChange, EffectSend, StepRun, WorkflowRun
from durableflows.models.compiled import Question, insert, write
from durableflows.transactions import after_commit, database

logger = log_lines.logger("durableflows.providers")


def look(provider: str) -> tuple[datetime, breakers.Breaker]:
    """The time, and the provider's breaker, without a lock: by one round trip where the database is the clock."""
    if not clock.may_be_asked_along():
        return clock.now(), read(provider)
    now, found = clock.now_and(_LOOK, [provider])
    return now, breakers.Breaker(provider) if found is None else value(Breaker.from_db(database(), _COLUMNS, found))


MOVED_FIELDS = (
    *("state", "failures", "changed_at", "opened_at", "open_until"),
    *("probe_token", "probe_until", "changed_by", "reason"),
)
_COLUMNS = [field.attname for field in Breaker._meta.concrete_fields]
_LOOK = f"SELECT {', '.join(_COLUMNS)} FROM {Breaker._meta.db_table} WHERE provider = %s"  # noqa: S608 - our own names


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
    row = lock(send.provider)  # two that fail at once: the second sees the first
    breaker = value(row)
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


def take_probe(row: Breaker, token: UUID | None, now: datetime, timeout_seconds: float) -> None:
    """Let this send, and no other in any process, try whether the provider is back, until it must have an answer."""
    must_end = SEND_BY_SECONDS + timeout_seconds + settings().LEASE_MARGIN_SECONDS
    row.probe_token, row.probe_until = token, now + timedelta(seconds=must_end)
    row.state, row.changed_at = str(BreakerState.HALF_OPEN), now
    write(row, database(), "state", "changed_at", "probe_token", "probe_until")
    logger.info("%s: one request tries whether it is back", row.provider)


def _probe_answered(run: WorkflowRun, step: StepRun, send: EffectSend, health: Health, now: datetime) -> None:
    row = lock(send.provider)
    if row.state != BreakerState.HALF_OPEN or row.probe_token != send.lease_token:
        return  # its place was given to another one, or a person has decided
    cool_down = settings().limits_of(send.provider).cool_down_seconds
    state, row.open_until = breakers.after_probe(health, now, cool_down)
    if state is BreakerState.OPEN:
        row.state, row.changed_at, row.probe_token, row.probe_until = str(state), now, None, None
        write(row, database(), "state", "changed_at", "open_until", "probe_token", "probe_until")
        return
    row.failures, row.opened_at = 0, None
    _move(row, state, now, reason="a request that tried was answered")
    _tell_run(run, step, row, now)


def _credentials_refused(run: WorkflowRun, step: StepRun, send: EffectSend, answer: Answer, now: datetime) -> None:
    """Pause the provider until a person resumes it, and say so once, however many runs learn it."""
    row = lock(send.provider)
    if row.state == BreakerState.PAUSED or not breakers.counts(value(row), send.started_at, now):
        return
    row.opened_at = now
    _move(row, BreakerState.PAUSED, now, reason="it does not take our credentials")
    _tell_run(run, step, row, now)
    text = f": {answer.error.text}" if answer.error else ""
    alerts.add(run, f"{row.provider} is paused: {row.reason}{text}"[:500], now)


def _kind_of(answer: Answer) -> str:
    """The kind of an answer's error, without its words: every tenant's people read why a provider is left alone."""
    return f", the last a {answer.error.error_class.rpartition('.')[2]}" if answer.error else ""


def change_by_hand(provider: str, state: BreakerState, *, by: str, reason: str, now: datetime, shown: str = "") -> bool:
    """Pause or resume a provider for a person. False: it was so already. The caller owns the transaction.

    shown    `core.breaker.mark` of what the person has seen; nothing is compared when it is empty
    Raises   TooLate when it stands otherwise by now
    """
    row = lock(provider)
    if shown and breakers.mark(value(row)) != shown:
        raise TooLate(f"{provider} is {_standing(row)} by now{_said_by(row)}: look at it again")
    if row.state == state:
        return False
    row.failures = 0
    row.opened_at = now if state is BreakerState.PAUSED else None
    _move(row, state, now, reason=reason, by=by)
    return True


def _standing(row: Breaker) -> str:
    return {BreakerState.CLOSED: "in use", BreakerState.PAUSED: "paused"}.get(BreakerState(row.state), "left alone")


def _said_by(row: Breaker) -> str:
    return f", by {row.changed_by} ({row.reason})" if row.changed_by else f" ({row.reason})" if row.reason else ""


def _move(row: Breaker, state: BreakerState, now: datetime, *, reason: str, by: str = "") -> None:
    row.state, row.changed_at, row.reason, row.changed_by = str(state), now, reason, by
    row.probe_token = row.probe_until = None
    if state is not BreakerState.OPEN:
        row.open_until = None
    write(row, database(), *MOVED_FIELDS)
    change = BreakerChange(provider=row.provider, state=row.state, at=now, actor_name=by, reason=reason)
    insert(change, database())
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
        return value(Breaker.from_db(database(), _COLUMNS, values))
    return breakers.Breaker(provider)


_BREAKER = Question(
    lambda alias, provider: Breaker.objects.using(alias).filter(pk=provider).values_list(*_COLUMNS), "(a provider)"
)


def read_all(names: Iterable[str] | None = None) -> dict[str, breakers.Breaker]:
    """The breakers of these providers, or of all that have ever had one."""
    rows = Breaker.objects.using(database()) if names is None else rows_of(names)
    return {row.provider: value(row) for row in rows.order_by("provider")}


def rows_of(names: Iterable[str]) -> QuerySet[Breaker]:
    """The rows of these providers that have one, for `value`."""
    return Breaker.objects.using(database()).filter(pk__in=list(names))


def value(row: Breaker) -> breakers.Breaker:
    """The row as `core.breaker` reads it."""
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


def lock(provider: str) -> Breaker:
    """Lock the provider's row, last of all; make it when it is the first time."""
    rows = Breaker.objects.using(database()).select_for_update(no_key=True)
    row = rows.filter(pk=provider).first()
    if row is None:
        Breaker.objects.using(database()).bulk_create([Breaker(provider=provider)], ignore_conflicts=True)
        row = rows.get(pk=provider)
    return row
