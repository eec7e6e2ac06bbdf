"""The provider has answered and the database is away: the receipt is written as long as the process may live, then the
effect is in doubt and looked up. Celery's hard limit ends the process HARD_LIMIT_AFTER_SECONDS after the soft one.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from django.db import OperationalError, connections
from django.test import override_settings

from durableflows import EffectCall, Found, NotFound, Retry, Run, Workflow, api, effect, runner, step
from durableflows.core import registry
from durableflows.core.definition import HARD_LIMIT_AFTER_SECONDS, SEND_BY_SECONDS
from durableflows.core.states import EffectState, RunState
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.testing import World, virtual
from tests.services import free_port
from tests.support.flows import PayReceipt, PayState, Provider

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

CALL_SECONDS = 0.5
STEP_SECONDS = SEND_BY_SECONDS + CALL_SECONDS


class Away:
    """The engine's database, which a test takes away and brings back: connections fail as they do in life."""

    def __init__(self) -> None:
        self._settings = connections["default"].settings_dict
        self._port = self._settings["PORT"]

    def leave(self) -> None:
        connections["default"].close()
        self._settings["PORT"] = free_port()

    def listen_again(self) -> None:
        """From another thread: whoever connects next gets through."""
        self._settings["PORT"] = self._port

    def come_back(self) -> None:
        self.listen_again()
        connections["default"].close()


@pytest.fixture
def away() -> Iterator[Away]:
    away = Away()
    yield away
    away.come_back()


@pytest.fixture
def world() -> Iterator[World]:
    with registry.isolated(), override_settings(DURABLEFLOWS={"LEASE_MARGIN_SECONDS": 0.1}), virtual() as world:
        yield world


def declare(provider: Provider, after_acting: Callable[[], None]) -> None:
    """One step that pays; `after_acting` happens between the provider's act and its answer."""

    def find(call: EffectCall, *, amount: int) -> Found[PayReceipt] | NotFound:
        return Found(provider.known[call.key]) if call.key in provider.known else NotFound()

    @effect(
        name="test.pay",
        provider="test",
        receipt=PayReceipt,
        lookup=find,
        settle_seconds=30,
        timeout_seconds=CALL_SECONDS,
    )
    def pay_it(call: EffectCall, *, amount: int) -> PayReceipt:
        receipt = provider.send(call, amount)
        after_acting()
        return receipt

    class Pay(Workflow[PayState]):
        """Pay somebody."""

        name, version, deadline = "pay", 1, timedelta(days=1)

        @step(start=True, end=True, effects=(pay_it,), timeout_seconds=STEP_SECONDS, retry=Retry(attempts=4))
        def pay(self, run: Run[PayState]) -> None:
            run.state.receipt_id = run.effect(pay_it, amount=run.state.amount).id


@contextmanager
def soft_limit(seconds: float) -> Iterator[None]:
    """Strike as Celery's soft limit strikes: an exception in the middle of whatever runs. Not while a call is timed."""

    def raise_it(*_: object) -> None:
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGUSR1, raise_it)
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.slow
def test_a_receipt_that_cannot_be_written_is_given_up_before_the_process_is_ended_and_looked_up(
    world: World, away: Away
):
    """S3.8: one act, whatever became of the receipt."""
    provider = Provider(keyed=False)
    declare(provider, away.leave)
    run = api.start("pay", {"amount": 5})
    began = time.monotonic()

    with pytest.raises(OperationalError):
        runner.run_step(run.pk, StepRun.objects.get().pk)

    assert STEP_SECONDS < time.monotonic() - began < STEP_SECONDS + HARD_LIMIT_AFTER_SECONDS
    away.come_back()
    assert SideEffect.objects.get().state == EffectState.DISPATCHED
    world.run_through()
    assert WorkflowRun.objects.get().state == RunState.SUCCEEDED
    assert SideEffect.objects.get().state == EffectState.CONFIRMED
    assert len(provider.acts) == len(provider.sends) == 1


@pytest.mark.slow
def test_a_soft_limit_that_strikes_while_the_receipt_is_written_does_not_lose_it(world: World, away: Away):
    """It is written in the seconds that are left, and only then the step's time is over."""
    provider = Provider(keyed=False)
    declare(provider, away.leave)
    run = api.start("pay", {"amount": 5})
    back = threading.Timer(1.5, away.listen_again)

    with soft_limit(1.0):
        back.start()
        runner.run_step(run.pk, StepRun.objects.get().pk)
    back.join()

    assert SideEffect.objects.get().state == EffectState.CONFIRMED
    assert "did not end within" in StepRun.objects.get().tries.get().error_text
    world.run_through()
    assert WorkflowRun.objects.get().state == RunState.SUCCEEDED
    assert len(provider.acts) == len(provider.sends) == 1
