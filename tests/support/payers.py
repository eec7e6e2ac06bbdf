"""Many runs that pay at one provider, and looks at who waits for it."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.contrib.auth.models import Permission, User
from django.test import override_settings

from durableflows import NeverSent, api
from durableflows.core.definition import EffectDefinition
from durableflows.core.states import RunState, StepState
from durableflows.doctor import Finding, Severity, examine
from durableflows.models import Breaker, EffectSend, StepRun, WorkflowRun
from durableflows.testing import World
from tests.support.flows import Fault, PayReceipt, Provider, pay_workflow, raise_without_acting

NAME = "test"
DOWN: Fault = raise_without_acting(NeverSent("connection refused"))


def limits(**given: object) -> override_settings:
    """The project's limits for the one provider."""
    return override_settings(DURABLEFLOWS={"PROVIDERS": {NAME: given}})


def start_many(provider: Provider, count: int, effect: EffectDefinition[PayReceipt] | None = None, **options: object):
    """Start runs of one workflow; nobody has claimed anything of them."""
    pay = pay_workflow(provider, effect, **options)  # type: ignore[arg-type]
    return [api.start(pay, {"amount": number + 1}).pk for number in range(count)]


def ready_to_pay(world: World, runs: Sequence[UUID]) -> list[StepRun]:
    """Bring the runs to their `pay` step, READY, their messages not delivered."""
    for message in [one for one in world.messages if one[0] == "pay.assess"]:
        world.messages.remove(message)
        world.deliver(*message)
    world.lose_messages()
    return [StepRun.objects.get(run=run, name="pay") for run in runs]


def breaker() -> Breaker:
    return Breaker.objects.get(pk=NAME)


def held() -> list[StepRun]:
    """Who waits for the provider, longest first."""
    return list(StepRun.objects.filter(state=StepState.READY).exclude(held_by="").order_by("held_since", "id"))


def pay_of(run: UUID) -> StepRun:
    return StepRun.objects.get(run=run, name="pay")


def states(runs: Sequence[UUID]) -> set[RunState]:
    return {RunState(state) for state in WorkflowRun.objects.filter(pk__in=runs).values_list("state", flat=True)}


def found(severity: Severity | None = None) -> list[Finding]:
    return [one for one in examine() if severity is None or one.severity is severity]


def codes() -> set[str]:
    return {one.code for one in found()}


def most_in(span: timedelta) -> int:
    """The most sends that began within any such span."""
    times = sorted(EffectSend.objects.filter(kind="send").values_list("started_at", flat=True))
    return max((sum(1 for other in times if at <= other < at + span) for at in times), default=0)


def operator_named(name: str) -> User:
    """Somebody with the right to operate runs."""
    user = User.objects.create(username=name)
    user.user_permissions.add(Permission.objects.get(codename="operate_run"))
    return User.objects.get(pk=user.pk)
