"""What people do with a provider: pause and resume it; and the sweep that lets steps go on when it takes them again.

A provider belongs to no tenant: where the project has tenants, only who acts in all of them may stop it for all.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q

from durableflows import clock, dispatch, provider_state, providers
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.core import breaker as breakers
from durableflows.core import free_text, rates, registry
from durableflows.core.breaker import BreakerState, Gate
from durableflows.core.rates import HeldFor, Waiter
from durableflows.core.states import StepState
from durableflows.core.wording import did_you_mean
from durableflows.errors import NotAllowed, NotFoundError
from durableflows.models import StepRun
from durableflows.models.step import GOES_ON
from durableflows.rights import as_stored
from durableflows.selectors import OPERATE
from durableflows.services.turns import all_steps, each, lock_going_on
from durableflows.tenants import tenants_of
from durableflows.transactions import database, transact

AT_A_TIME = 50
"""So many steps at most are let go on in one sweep, also to a provider without limits that has just come back."""


def pause(provider: str, *, by: Any, reason: str, shown: str = "") -> breakers.Breaker:
    """Send nothing more to a provider until somebody resumes it; what is under way ends and is recorded.

    shown            what the person has seen of it (`core.breaker.mark`), to be the same under the lock
    Raises           NotFoundError, NotAllowed, InvalidState without a reason, TooLate when it is no longer as shown.
                     A second pause changes nothing
    Writes / Locks   Breaker, BreakerChange; locks the provider's row
    Crash            after the commit no process sends anything to it
    """
    return _change(provider, BreakerState.PAUSED, "pause", by=by, reason=reason, shown=shown)


def resume(provider: str, *, by: Any, reason: str, shown: str = "") -> breakers.Breaker:
    """Let requests to a provider leave again, whoever or whatever has stopped them.

    Raises   as `pause`. One that is not stopped is left alone
    Crash    after the commit the sweep lets the steps go on that wait
    """
    return _change(provider, BreakerState.CLOSED, "resume", by=by, reason=reason, shown=shown)


def known() -> set[str]:
    """The providers that effects, settings or rows name."""
    return declared() | set(provider_state.read_all())


def declared() -> set[str]:
    """The providers that effects or settings name."""
    effects = {effect.provider for one in registry.definitions() for effect in one.effects.values()}
    return effects | set(settings().PROVIDERS)


def check_known(provider: str) -> None:
    """Raise NotFoundError for a provider that nothing names."""
    names = known()
    if provider not in names:
        raise NotFoundError(f"there is no provider {provider[:60]!r}{did_you_mean(provider, names)}")


def _change(provider: str, state: BreakerState, verb: str, *, by: Any, reason: str, shown: str) -> breakers.Breaker:
    why, by = free_text.kept_reason(reason, verb), as_stored(by)
    check_known(provider)
    _check_right(verb, by)
    name = "" if by is None else str(by.get_username())[:150]
    changed = _store(provider, state, name, why, shown)
    cross(Boundary.OPERATE_AFTER_COMMIT)
    return changed


def _check_right(verb: str, by: Any) -> None:
    if by is not None and (why := why_not(by)):
        raise NotAllowed(f"{by} may not {verb} a provider: {why}")


def why_not(by: Any) -> str:
    """Why a person may not stop a provider, nor let it go on; '' when nothing is in the way. Raises TenantsUnknown.

    Runs the project's code: never under a lock.
    """
    if not by.has_perm(OPERATE):
        return f"the permission {OPERATE} is needed"
    if settings().TENANTS_OF and tenants_of(by) is not None:
        return f"it serves all tenants, and {by} acts in some only"
    return ""


@transact
def _store(provider: str, state: BreakerState, name: str, reason: str, shown: str) -> breakers.Breaker:
    now = clock.now()
    provider_state.change_by_hand(provider, state, by=name, reason=reason, now=now, shown=shown)
    cross(Boundary.OPERATE_BEFORE_COMMIT)
    return provider_state.read(provider)


def let_go_on(now: datetime) -> int:
    """Let steps go on that wait for a provider, those that wait longest first, as far as it takes them now."""
    held = all_steps().filter(state=StepState.READY).exclude(held_by="")
    names = held.order_by("held_by").values_list("held_by", flat=True).distinct()
    return sum(each(_chosen(next_ones(name, now)), _let_go_on, line=f"held at {name}") for name in names)


def _chosen(ids: Collection[UUID]) -> Any:
    return all_steps().filter(pk__in=ids).order_by("held_since", "id")


def next_ones(provider: str, now: datetime) -> tuple[UUID, ...]:
    """Who goes on now. Without the provider's lock: a guess that `providers.admit` corrects."""
    gate = breakers.gate(provider_state.read(provider), now)
    if gate is Gate.HOLD:
        return ()
    limits = settings().limits_of(provider)
    sent = [providers.sends_within(provider, span, now).count() for _, span in limits.rates]
    flying = providers.under_way(provider, now)
    busy_keys = set(flying.exclude(turn_key="").values_list("turn_key", flat=True))
    most = 1 if gate is Gate.PROBE else AT_A_TIME
    under_way = flying.count() if limits.at_once is not None else 0
    places = rates.places_left(limits, under_way, sent, most)
    repeats = rates.repeats_left(limits, *providers.recent(provider, now))
    return rates.next_in_line(_waiters(provider, now), places, repeats, busy_keys)


def _waiters(provider: str, now: datetime) -> list[Waiter]:
    line = providers.in_line(provider, now).values_list("pk", "held_for", "held_key", "wake_at")
    return [
        Waiter(pk, HeldFor(held_for), key, is_due=wake_at is None or wake_at <= now)
        for pk, held_for, key, wake_at in line[: 10 * AT_A_TIME]
    ]


def _let_go_on(step_id: UUID) -> bool:
    went_on = _wake(step_id)
    cross(Boundary.TIMER_AFTER_COMMIT)
    return went_on


@transact
def _wake(step_id: UUID) -> bool:
    locked = lock_going_on(step_id)
    if locked is None:
        return False
    (run, step), now = locked, clock.now()
    if step.state != StepState.READY or not step.held_by or step.wake_at is None or step.wake_at <= now:
        return False
    step.wake_at, step.sent_at, step.sends = now, None, 0
    step.resend_at = now + timedelta(seconds=settings().PUBLISH_SECONDS)
    step.store("wake_at", "sent_at", "sends", "resend_at")
    dispatch.send_after_commit(run, step)
    cross(Boundary.TIMER_BEFORE_COMMIT)
    return True


def left_alone(now: datetime) -> list[str]:
    """The providers for which nothing leaves now."""
    return [name for name, breaker in provider_state.read_all().items() if breakers.gate(breaker, now) is Gate.HOLD]


def waiting(provider: str) -> int:
    """How many steps wait for it."""
    steps = StepRun.objects.using(database()).filter(GOES_ON, Q(state=StepState.READY, held_by=provider))
    return steps.count()
