"""A run that pays at a provider whose events are read, and what the provider tells of it."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from durableflows import api
from durableflows.doctor import examine
from durableflows.models import ProviderEvent, SideEffect, WorkflowRun
from durableflows.testing import World
from tests.support.flows import (
    Provider,
    pay_effect,
    pay_workflow,
    read_event,
)


def start(provider: Provider, **options: Any) -> WorkflowRun:
    """A run that pays 5 at a provider whose events are read."""
    options = {"event": read_event, "with_lookup": False, **options}
    return api.start(pay_workflow(provider, pay_effect(provider, **options)), {"amount": 5})


def effect_of(run: WorkflowRun) -> SideEffect:
    return SideEffect.objects.get(run=run)


def tell(name: str, body: dict[str, Any]) -> ProviderEvent:
    return api.provider_event("test", name, body, kind="pay.updated")


def now_of(run: WorkflowRun) -> WorkflowRun:
    return WorkflowRun.objects.get(pk=run.pk)


def pass_time(world: World, span: timedelta) -> None:
    """Let time go by with all that is due meanwhile."""
    until = world.clock.now() + span
    world.run_through(until=until)
    world.clock.move_to(until)
    world.run_until_idle()


def assert_whole(run_id: UUID) -> None:
    """No promise is broken, as far as the rows tell."""
    assert [finding for finding in examine(run_id) if finding.severity == "broken"] == []
