"""Runs in each place where a doctor, a clean-up or a verification may find them, and what the doctor says of them."""

from collections.abc import Callable
from uuid import UUID

import pytest
from django.db import connection

from durableflows import NeedsHuman, Transient, UnknownOutcome, api, claims, doctor
from durableflows.doctor import Severity
from durableflows.models import StepRun
from durableflows.testing import Boundary, Crash, World, crash_at
from tests.support.flows import Provider, act_then_raise, answer_pending, pay_effect, pay_workflow, raise_without_acting


def ready(world: World) -> UUID:
    return api.start(pay_workflow(Provider()), {"amount": 5}).pk


def running(world: World) -> UUID:
    run_id = ready(world)
    claims.claim(run_id, StepRun.objects.get(run=run_id).pk, task_id="t", pid=1)
    return run_id


def under_way(world: World) -> UUID:
    run_id = ready(world)
    with crash_at(Boundary.EFFECT_AFTER_RESERVE), pytest.raises(Crash):
        world.run_until_idle()
    return run_id


def performed(world: World, provider: Provider, **effect) -> UUID:
    run_id = api.start(pay_workflow(provider, pay_effect(provider, **effect)), {"amount": 5}).pk
    world.run_until_idle()
    return run_id


def done(world: World) -> UUID:
    return performed(world, Provider())


def retrying(world: World) -> UUID:
    return performed(world, Provider(faults=[raise_without_acting(Transient("503"))]))


def parked(world: World) -> UUID:
    return performed(world, Provider(faults=[raise_without_acting(NeedsHuman("expired"))]))


def accepted(world: World) -> UUID:
    return performed(world, Provider(faults=[answer_pending]))


def in_doubt(world: World) -> UUID:
    return performed(world, Provider(faults=[act_then_raise(UnknownOutcome("lost"))], keyed=False), key_window=None)


def with_a_person(world: World) -> UUID:
    faults = [act_then_raise(UnknownOutcome("lost"))]
    return performed(world, Provider(faults=faults), key_window=None, with_lookup=False)


def handed_over(world: World) -> UUID:
    run_id = with_a_person(world)
    world.clock.advance(minutes=5)
    world.run_until_idle()
    return run_id


def absent(world: World) -> UUID:
    faults = [raise_without_acting(UnknownOutcome("lost"))]
    run_id = performed(world, Provider(faults=faults, keyed=False), key_window=None)
    world.run_through()
    return run_id


def asking(world: World) -> UUID:
    run_id = api.start(pay_workflow(Provider()), {"amount": 900, "ask": True}).pk
    world.run_until_idle()
    return run_id


def cancelled(world: World) -> UUID:
    run_id = ready(world)
    api.cancel(run_id, reason="no more")
    return run_id


def ending(world: World) -> UUID:
    run_id = with_a_person(world)
    api.cancel(run_id, reason="no more")
    return run_id


STAGES = [
    ready,
    running,
    under_way,
    done,
    retrying,
    parked,
    accepted,
    in_doubt,
    with_a_person,
    handed_over,
    absent,
    asking,
]
STAGES += [cancelled, ending]
Stage = Callable[[World], UUID]


def sql(text: str, **values: str | UUID) -> None:
    with connection.cursor() as cursor:
        # Deferred foreign keys stand in the way of ALTER TABLE.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(text, values)


def codes(run_id: UUID | None = None) -> list[str]:
    return [finding.code for finding in doctor.examine(run_id)]


def bad(run_id: UUID | None = None) -> list[tuple[str, str]]:
    return [(one.code, one.text) for one in doctor.examine(run_id) if one.severity is not Severity.ATTENTION]
