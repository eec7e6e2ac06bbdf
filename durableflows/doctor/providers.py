"""Which providers are left alone, why, and who waits for them? And is the one that tries still there?"""

from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Count

from durableflows import provider_state
from durableflows.core.breaker import Breaker, BreakerState
from durableflows.core.states import StepState
from durableflows.doctor.findings import Finding, listed
from durableflows.doctor.rows import Scope

MARGIN_SECONDS = 30.0
"""A probe that is late by less may just have been taken over."""


def examine_providers(scope: Scope) -> list[Finding]:
    """All findings about providers; of one run those that it waits for."""
    held = scope.steps().filter(state=StepState.READY).exclude(held_by="").order_by()
    waiting = dict(held.values_list("held_by").annotate(steps=Count("pk")))
    names = None if scope.run_id is None else waiting
    found = [one for one in provider_state.read_all(names).values() if one.state is not BreakerState.CLOSED]
    return [
        *listed("probe-overdue", _overdue(scope, found)),
        *listed("provider-paused", _left_alone(found, waiting, by_person=True)),
        *listed("provider-open", _left_alone(found, waiting, by_person=False)),
    ]


def _overdue(scope: Scope, found: list[Breaker]) -> Iterator[tuple[None, str]]:
    late = scope.now - timedelta(seconds=MARGIN_SECONDS)
    for one in found:
        if one.state is BreakerState.HALF_OPEN and one.probe_until is not None and one.probe_until < late:
            text = f"the request that tries {one.provider} should have had an answer by {one.probe_until:%H:%M:%S} UTC"
            yield None, f"{text}, and no other has taken its place"


def _left_alone(found: list[Breaker], waiting: dict[str, int], *, by_person: bool) -> Iterator[tuple[None, str]]:
    for one in found:
        if (one.state is BreakerState.PAUSED) == by_person:
            by = f" by {one.changed_by}" if one.changed_by else ""
            since = f" since {one.since:%Y-%m-%d %H:%M} UTC" if one.since else ""
            stands = "paused" if by_person else "left alone"
            steps = waiting.get(one.provider, 0)
            yield None, f"{one.provider} is {stands}{by}{since}: {one.reason}; {steps} step(s) wait for it"
