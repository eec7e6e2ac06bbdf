"""Refunds under fire: a provider that loses answers, children and whole workers that are killed at random.

At the end each run has ended or waits for a person who is told why, the doctor finds nothing broken, and the provider's
own books show each operation's effect once. The number of refunds is CHAOS_REFUNDS (200), the seed CHAOS_SEED.
"""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from customer_ops.models import Charge, RefundRequest
from customer_ops.sandbox.control import BooksView, RunningSandbox, running_sandbox
from durableflows import FactsChanged, Money, TooLate, api, doctor
from durableflows.core.states import ApprovalState, EffectState, RunState
from durableflows.models import ApprovalRequest, SideEffect, StepRun, WorkflowRun
from tests.support.refunds import ask, make_charge, person, worker_environment
from tests.support.workers import Fleet, fleet, pool_children, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

REFUNDS = int(os.environ.get("CHAOS_REFUNDS", "200"))
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
STALE_SECONDS = 6.0
FAULTY = 0.2
# What a request may meet; a time-out costs the client its three seconds, so it is rarer than a cut connection.
MIX = {
    "cut_before": 2.0,
    "cut_after": 4.0,
    "timeout_after": 1.0,
    "rate_limited": 1.0,
    "error_before": 1.0,
    "half_answer": 1.0,
}


def test_refunds_under_fire_are_paid_once_each(tmp_path: Path):
    """S3.17, S3.54, S3.49, S2.17, P1 to P5, P10, P15, R14."""
    print(f"CHAOS_SEED={SEED}")
    rng = random.Random(SEED)
    with running_sandbox(books=tmp_path / "books.sqlite3") as sandbox:
        agent = person("agent", "request_refund")
        manager = person("manager", "approve_refund", "approve_any_refund")
        charges = _shop(sandbox)
        environment = worker_environment(sandbox) | {"TEST_STALE_SECONDS": str(STALE_SECONDS)}
        with fleet(tmp_path, **environment) as ships:
            ships.start(), ships.start()
            sandbox.fault_rate(FAULTY, seed=SEED, mix=MIX)
            requests = [_ask(charge, agent) for charge in charges]
            kills = _fire(ships, manager, rng)
            sandbox.fault_rate(0)
            _calm(ships, manager)
            books = sandbox.books()

        assert kills["child"] >= 5
        assert kills["worker"] >= 1
        _check_books(requests, books)
        _check_rows()


def _shop(sandbox: RunningSandbox) -> list[Charge]:
    amounts = [Money(90_000 if number % 10 == 0 else 4_000, "USD") for number in range(REFUNDS)]
    return [make_charge(sandbox, f"C-{number}", amount) for number, amount in enumerate(amounts)]


def _ask(charge: Charge, agent: User) -> RefundRequest:
    return ask(charge, charge.amount if charge.amount.amount > 500 else Money(1_500, "USD"), agent)


def _fire(ships: Fleet, manager: User, rng: random.Random) -> Counter[str]:
    """Kill at random until most runs have ended, or for a minute and a half."""
    kills: Counter[str] = Counter()
    stop_at, next_worker = time.monotonic() + 100, time.monotonic() + 8
    while time.monotonic() < stop_at and (_busy() > REFUNDS // 20 or kills["worker"] < 1 or kills["child"] < 5):
        time.sleep(rng.uniform(0.8, 2.4))  # the pace of the kills, not a wait for anything
        _approve(manager)
        living = [worker for worker in ships.workers if worker.poll() is None]
        if time.monotonic() > next_worker:
            ships.kill(rng.choice(living))
            ships.start()
            kills["worker"] += 1
            next_worker = time.monotonic() + 15
            continue
        children = [pid for worker in living for pid in pool_children(worker)]
        if children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(children), signal.SIGKILL)
                kills["child"] += 1
    return kills


def _busy() -> int:
    return WorkflowRun.objects.filter(ended_at__isnull=True).count()


def _approve(manager: User) -> None:
    for request in ApprovalRequest.objects.filter(state=ApprovalState.OPEN):
        with contextlib.suppress(FactsChanged, TooLate):
            api.answer(request.pk, "approve", by=manager, facts_digest=request.facts_digest)


def _calm(ships: Fleet, manager: User) -> None:
    """Let everything go on without faults until each run has ended or asks for a person."""

    def is_calm() -> bool:
        _approve(manager)
        return not [run for run in WorkflowRun.objects.filter(ended_at__isnull=True) if not _asks(run)]

    try:
        wait_for(is_calm, seconds=120, what="all runs to end or to ask for a person")
    except AssertionError:
        for run in WorkflowRun.objects.filter(ended_at__isnull=True)[:5]:
            print(
                run.pk,
                run.state,
                run.parked_detail,
                list(run.steps.values_list("name", "state", "waits_for", "wake_at")),
            )
        raise


def _asks(run: WorkflowRun) -> bool:
    if run.state == RunState.PARKED:
        return bool(run.parked_detail)
    return run.steps.filter(needs_person=True).exclude(waits_for="").exists()


def _check_books(requests: list[RefundRequest], books: BooksView) -> None:
    assert books.repeated == []
    for request in requests:
        assert request.run_id is not None
        run = WorkflowRun.objects.get(pk=request.run_id)
        rows = SideEffect.objects.filter(run=run, effect="payments.refund")
        acted = sum(books.refunds_of(row.key) for row in rows)
        assert acted <= 1, f"run {run.pk} was paid {acted} times"
        request.refresh_from_db()
        if request.refund_id:
            assert acted == 1, f"run {run.pk} says refunded, the books do not"
        elif acted == 1:
            assert run.ended_at is None, f"run {run.pk} has ended as {run.state}, and money moved"


def _check_rows() -> None:
    assert [finding for finding in doctor.examine() if finding.severity == "broken"] == []
    assert doctor.verify().findings == ()
    assert not StepRun.objects.filter(state="RUNNING").exists()
    states = Counter(WorkflowRun.objects.values_list("state", flat=True))
    print(dict(states), dict(Counter(SideEffect.objects.values_list("effect", "state"))))
    done = states[RunState.SUCCEEDED]
    assert done >= REFUNDS * 0.7, f"too few runs ended well: {dict(states)}"
    confirmed = SideEffect.objects.filter(effect="payments.refund", state=EffectState.CONFIRMED).count()
    assert confirmed >= done
