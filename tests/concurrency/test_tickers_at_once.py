"""All periodic jobs run twice at the same instant, and fifty times in a burst: what is due takes effect once (R09)."""

from collections import Counter
from functools import partial
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from durableflows import Transient, api
from durableflows.core.states import ApprovalState
from durableflows.models import ApprovalRequest, RunEvent, StepRun
from durableflows.services import sweeps
from durableflows.testing import World
from tests.support.flows import Provider, pay_workflow, raise_without_acting
from tests.support.rivals import at_once
from tests.support.waits import waiting_workflow

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

KINDS = ("retry", "timer", "request", "unsent")


@pytest.mark.parametrize(("tickers", "due"), [(2, 40), (50, 100)])
def test_due_things_take_effect_once_each_however_many_tickers_come(world: World, tickers: int, due: int):
    """R09: retries and timers (one resume), requests (one escalation), steps that were never sent (one message)."""
    kinds = due_things(world, due // len(KINDS))
    before = counted()
    world.sent.clear()

    sweep = partial(sweeps.sweep, may_free_stale=False)
    done = at_once(*[sweep] * tickers)

    assert [one for one in done if isinstance(one, BaseException)] == []
    sweeps.sweep(may_free_stale=False)
    new = counted()
    new.subtract(before)
    new = +new
    resumed = {run for run, kind in kinds.items() if kind in ("retry", "timer")}
    escalated = {run for run, kind in kinds.items() if kind == "request"}
    assert new == {
        **{(run, "step.ready"): 1 for run in resumed},
        **{(run, "approval.escalated"): 1 for run in escalated},
    }
    assert Counter(run for _, (run, _) in world.sent) == {run: 1 for run, kind in kinds.items() if kind != "request"}
    assert set(ApprovalRequest.objects.values_list("state", "ladder_position")) == {(ApprovalState.OPEN, 1)}

    some = sorted(world.messages)[::3]  # by chance of their ids; each message leads to the same
    for message in [*some, *reversed(some)]:
        world.deliver(*message)
    for run, kind in kinds.items():
        if run in {run for _, (run, _) in some}:
            assert tries_of(run, kind) == (2 if kind == "retry" else 1)


def due_things(world: World, each: int) -> dict[str, str]:
    """So many runs of each kind: run id -> what is due of it."""
    User.objects.create_superuser("boss")  # somebody can answer
    provider = Provider(faults=[raise_without_acting(Transient("503"))] * each)
    pay, wait = pay_workflow(provider), waiting_workflow()
    begin = {
        "retry": lambda: api.start(pay, {"amount": 5}),
        "timer": lambda: api.start(wait, {"way": "timer"}),
        "request": lambda: api.start(pay, {"amount": 5, "ask": True}),
        "unsent": lambda: api.start(pay, {"amount": 5}),
    }
    kinds: dict[str, str] = {}
    for kind in KINDS:
        with transaction.atomic():
            kinds |= {str(begin[kind]().pk): kind for _ in range(each)}
        if kind == "unsent":
            world.lose_messages()
        while world.messages:
            world.deliver(*world.messages.popleft())
        world.clock.advance(days=3 if kind == "request" else 0)
    StepRun.objects.filter(run__in=of(kinds, "unsent")).update(sends=0, sent_at=None, resend_at=world.clock.now())
    return kinds


def of(kinds: dict[str, str], kind: str) -> list[UUID]:
    return [UUID(run) for run, what in kinds.items() if what == kind]


def counted() -> Counter[tuple[str, str]]:
    """How often each kind of thing is in the history of each run."""
    return Counter((str(run), kind) for run, kind in RunEvent.objects.values_list("run_id", "kind"))


def tries_of(run: str, kind: str) -> int:
    """How often the step began that was due."""
    name = {"retry": "pay", "timer": "go_on", "unsent": "assess"}[kind]
    return StepRun.objects.get(run=UUID(run), name=name).attempts
