"""Everybody does everything to the same runs at once: no deadlock, no broken promise, no run that is stuck."""

import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from durableflows import DurableflowsError, Transient, UnknownOutcome, api
from durableflows.core.states import EFFECT_OPEN
from durableflows.doctor import Severity, examine, verify
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.services import reconcile, sweeps
from durableflows.testing import World
from tests.support.flows import Provider, act_then_raise, answer_pending, pay_workflow, raise_without_acting
from tests.support.play import assert_acts_once, assert_chain
from tests.support.rivals import at_once

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

MIX_SECONDS = 3.0
THREADS = 6
FAULTS = (
    act_then_raise(UnknownOutcome("cut")),
    raise_without_acting(UnknownOutcome("cut")),
    raise_without_acting(Transient("503")),
    answer_pending,
)


STOPS = ("run.ended", "run.paused")
GOES_ON = ("run.resumed", "run.extended", "run.redriven")


class Mix:
    """Two runs at a time, and every verb on them."""

    def __init__(self, world: World, boss: User, seed: int) -> None:
        self.world, self.boss, self.seed = world, boss, seed
        dice = random.Random(seed)
        self.provider = Provider(faults=[dice.choice(FAULTS) for _ in range(400)])
        pay_workflow(self.provider)
        self.runs = [self._start(dice) for _ in range(2)]
        self.done: Counter[str] = Counter()
        self.stop_at = time.monotonic() + MIX_SECONDS

    def play(self, number: int) -> None:
        """Do things to runs until the time is over. What is refused is an answer; all else is the test's finding."""
        dice = random.Random(self.seed * 100 + number)
        verbs = self._verbs()
        while time.monotonic() < self.stop_at:
            verb = dice.choice(verbs)
            try:
                verb(dice.choice(self.runs), dice)
                self.done[verb.__name__] += 1
            except DurableflowsError as refused:
                self.done[f"{verb.__name__}: {refused.code}"] += 1

    def _verbs(self) -> list[Callable[[UUID, random.Random], None]]:
        workers = [self.deliver, self.deliver, self.deliver_again, self.die]
        return [
            *workers,
            self.sweep,
            self.route,
            self.answer,
            self.resolve,
            self.cancel,
            self.retry,
            self.pause,
            self.resume,
            self.resume,
            self.extend,
            self.edit,
            self.redrive,
            self.redrive,
            self.abandon,
            self.read,
            self.wait,
        ]

    def _start(self, dice: random.Random) -> UUID:
        return api.start("pay", {"amount": 5, "ask": dice.random() < 0.5}).pk

    def deliver(self, run_id: UUID, dice: random.Random) -> None:
        if self.world.messages:
            try:
                message = self.world.messages.popleft()
            except IndexError:  # another worker was quicker
                return
            self.world.deliver(*message)

    def deliver_again(self, run_id: UUID, dice: random.Random) -> None:
        self.world.deliver(*dice.choice(list(self.world.sent)))

    def die(self, run_id: UUID, dice: random.Random) -> None:
        """Somebody believes that the workers of this run are dead. They are not."""
        tasks = StepRun.objects.filter(run=run_id).exclude(lease_task_id="").values_list("lease_task_id", flat=True)
        sweeps.free_lost_tasks(tasks)

    def sweep(self, run_id: UUID, dice: random.Random) -> None:
        sweeps.sweep(may_free_stale=False)

    def route(self, run_id: UUID, dice: random.Random) -> None:
        for step_id in StepRun.objects.filter(run=run_id).values_list("pk", flat=True):
            reconcile.route(step_id)

    def answer(self, run_id: UUID, dice: random.Random) -> None:
        for request in ApprovalRequest.objects.filter(run=run_id):
            verdict = dice.choice(["approve", "approve", "reject"])
            api.answer(request.pk, verdict, by=self.boss, facts_digest=request.facts_digest)

    def resolve(self, run_id: UUID, dice: random.Random) -> None:
        for row in SideEffect.objects.filter(run=run_id):
            if dice.random() < 0.5:
                api.resolve_effect(row.pk, "ask_again", by=self.boss, reason="x", row_version=row.row_version)
            else:
                self.tell(row)

    def tell(self, row: SideEffect) -> None:
        """A person looks into the provider's books, and says what is there."""
        known = self.provider.known.get(row.key)
        receipt = {"id": known.id, "status": "done"} if known else None
        verdict = "happened" if known else "did_not_happen"
        api.resolve_effect(row.pk, verdict, by=self.boss, reason="x", row_version=row.row_version, receipt=receipt)

    def cancel(self, run_id: UUID, dice: random.Random) -> None:
        if dice.random() < 0.2:
            api.cancel(run_id, by=self.boss, reason="x")

    def retry(self, run_id: UUID, dice: random.Random) -> None:
        api.retry(run_id, by=self.boss, reason="x")

    def pause(self, run_id: UUID, dice: random.Random) -> None:
        api.pause(run_id, by=self.boss, reason="x")

    def resume(self, run_id: UUID, dice: random.Random) -> None:
        api.resume(run_id, by=self.boss, reason="x")

    def extend(self, run_id: UUID, dice: random.Random) -> None:
        """More time; of a run that this process has brought to its deadline as well."""
        if dice.random() < 0.3:
            WorkflowRun.objects.filter(pk=run_id, ended_at__isnull=True).update(deadline_at=self.world.clock.now())
        api.extend(run_id, by=self.boss, reason="x", deadline=timedelta(days=dice.choice([1, 14])))

    def edit(self, run_id: UUID, dice: random.Random) -> None:
        """Also what was approved, and what an effect is asked to do."""
        changes: dict[str, object] = dice.choice([{"amount": 5}, {"amount": 6}, {"receipt_id": "by hand"}])
        api.edit(run_id, by=self.boss, reason="x", changes=changes)

    def redrive(self, run_id: UUID, dice: random.Random) -> None:
        """Never with `repeat`: the provider must not act twice."""
        api.redrive(run_id, by=self.boss, reason="x", step=dice.choice(["assess", "pay"]))

    def abandon(self, run_id: UUID, dice: random.Random) -> None:
        if dice.random() < 0.1:
            api.abandon(run_id, by=self.boss, reason="x", heir=self.boss)

    def read(self, run_id: UUID, dice: random.Random) -> None:
        """Look at it; and put a new run in the place of one that has ended."""
        assert api.explain(run_id, by=self.boss).sentence
        examine(run_id)
        place = dice.randrange(len(self.runs))
        if WorkflowRun.objects.filter(pk=self.runs[place], ended_at__isnull=False).exists():
            self.runs[place] = self._start(dice)

    def wait(self, run_id: UUID, dice: random.Random) -> None:
        self.world.clock.advance(seconds=dice.choice([1, 5, 40]))
        self.finish_pending()

    def finish_pending(self) -> None:
        for key, receipt in list(self.provider.known.items()):
            self.provider.known[key] = receipt.model_copy(update={"status": "done"})

    def settle_down(self, run: WorkflowRun) -> None:
        """Whatever the mix left, sweeps, a person's cancel and a look into the books bring it to an end."""
        self.world.run_through(limit=300)
        run.refresh_from_db()
        if run.ended_at is None:
            api.cancel(run.pk, by=self.boss, reason="the test is over")
            self.world.run_through(limit=300)
        self.tell_open(run)
        self.world.run_through(limit=300)
        run.refresh_from_db()
        steps = list(StepRun.objects.filter(run=run, ended_at__isnull=True).values_list("name", "state", "waits_for"))
        assert run.ended_at is not None, (run.state, run.parked_detail, steps)
        assert not steps

    def tell_open(self, run: WorkflowRun) -> None:
        """What a run has left open is settled, by a look into the books."""
        for row in SideEffect.objects.filter(run=run, state__in=[str(state) for state in EFFECT_OPEN]):
            self.tell(row)
            self.world.run_through(limit=300)


def broken() -> list[str]:
    return [f"{found.code}: {found.text}" for found in examine() if found.severity is Severity.BROKEN]


def sends_after_the_stop(run: WorkflowRun) -> int:
    """P6: nothing is sent once a cancel is asked, confirmed or not; nor after an end, unless an operator reopens it."""
    events = RunEvent.objects.filter(run=run).order_by("sequence")
    sends, is_stopped, is_final = 0, False, False
    for kind in events.values_list("kind", flat=True):
        is_final |= kind in ("run.cancel_asked", "run.abandoned")
        is_stopped = (is_stopped or kind in STOPS) and kind not in GOES_ON
        sends += kind == "effect.dispatched" and (is_stopped or is_final)
    return sends


@pytest.mark.parametrize("seed", range(2))
def test_all_verbs_at_once(world: World, django_user_model: type[User], seed: int):
    """P1 to P6, P10, P13, P15: six threads do everything that can be done to a run, again and again."""
    mix = Mix(world, django_user_model.objects.create_superuser("boss"), seed)

    outcomes = at_once(*[partial(mix.play, number) for number in range(THREADS)])

    assert outcomes == [None] * THREADS, outcomes
    assert sum(mix.done.values()) > 50, mix.done
    assert broken() == []
    mix.provider.faults.clear()
    mix.finish_pending()
    for run in WorkflowRun.objects.filter(ended_at__isnull=True):
        mix.settle_down(run)
    assert broken() == []
    assert verify().findings == ()
    assert_acts_once(mix.provider)
    for run in WorkflowRun.objects.all():
        assert_chain(run)
        assert sends_after_the_stop(run) == 0
