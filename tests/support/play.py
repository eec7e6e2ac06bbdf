"""Workers that a test moves by hand, one transaction or outside call at a time, and what must hold in the end.

A `Hand` does what `runner` and `context` do with one attempt, but stops wherever the test wants: a slow worker is a
hand that goes on later. For tests of the protocol only.
"""

import time
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from uuid import UUID

from durableflows import Transient, api, claims, journal, ledger, ledger_answers
from durableflows.core.classify import answer_of
from durableflows.core.decide import Decision
from durableflows.core.definition import SEND_BY_SECONDS, EffectDefinition
from durableflows.core.directives import Goto
from durableflows.core.outcomes import Answer, AnswerKind, Done, Failed, FailureKind, InDoubt, Outcome
from durableflows.core.states import EFFECT_OPEN, EffectState, RunState, StepState
from durableflows.leases import Claim
from durableflows.ledger import Reservation, Reserved
from durableflows.models import EffectSend, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World
from tests.support.flows import PayReceipt, PayState, Provider, pay_effect, pay_workflow

KEY_WINDOW = timedelta(hours=24)
SETTLE = 30.0


@dataclass
class Stage:
    """A run whose `pay` step is READY, its provider, and the world around it."""

    world: World
    provider: Provider
    effect: EffectDefinition[PayReceipt]
    run_id: UUID

    def hand(self, name: str = "A") -> "Hand":
        """A worker that has not claimed yet."""
        return Hand(self, name)

    def run(self) -> WorkflowRun:
        return WorkflowRun.objects.get(pk=self.run_id)

    def step(self, name: str = "pay") -> StepRun:
        return StepRun.objects.get(run_id=self.run_id, name=name)

    def row(self) -> SideEffect:
        """The latest issue of the one effect."""
        return SideEffect.objects.filter(run_id=self.run_id).order_by("-issue")[0]

    def events(self, kind: str) -> list[RunEvent]:
        return list(RunEvent.objects.filter(run_id=self.run_id, kind=kind).order_by("sequence"))

    def pass_time(self, seconds: float = 31.0, **parts: float) -> None:
        self.world.clock.advance(seconds=seconds, **parts)

    def sweep(self) -> None:
        """One round of a ticker; what it sends is kept, not delivered."""
        sweeps.sweep(may_free_stale=False)

    def look(self) -> None:
        """Let tickers and workers do all that concerns lookups at this moment, but claim nothing."""
        self.sweep()
        for message in [m for m in self.world.messages if m[0] == "durableflows.lookup"]:
            self.world.messages.remove(message)
            self.world.deliver(*message)


def stage(
    world: World,
    *,
    keyed: bool = True,
    lookup: bool = True,
    resend_when_absent: bool = False,
    provider: Provider | None = None,
    **flow: object,
) -> Stage:
    """Start a run and bring it to its `pay` step, which nobody has claimed."""
    provider = provider or Provider(keyed=keyed)
    window = KEY_WINDOW if keyed else None
    effect = pay_effect(provider, key_window=window, with_lookup=lookup, resend_when_absent=resend_when_absent)
    run = api.start(pay_workflow(provider, effect, **flow), {"amount": 5})  # type: ignore[arg-type]
    played = Stage(world, provider, effect, run.pk)
    world.deliver(*world.messages.popleft())
    assert played.step().state == StepState.READY
    world.lose_messages()
    return played


class Hand:
    """One worker with one attempt at `pay`, moved by the test."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.name = stage, name
        self.claimed: Claim | None = None
        self.reserved: Reserved | None = None

    @property
    def token(self) -> UUID:
        """Of the lease that this worker has, or believes to have."""
        assert self.claimed is not None
        return self.claimed.lease.token

    @property
    def send(self) -> EffectSend:
        """The send that this worker began."""
        assert self.reserved is not None
        return EffectSend.objects.get(pk=self.reserved.send_id)

    def claim(self) -> "Hand":
        self.claimed = claims.claim(self.stage.run_id, self.stage.step().pk, task_id=self.name, pid=1)
        assert self.claimed is not None, f"{self.name} may not claim: {self.stage.step().state}"
        return self

    def may_claim(self) -> bool:
        return claims.claim(self.stage.run_id, self.stage.step().pk, task_id=self.name, pid=1) is not None

    def ask(self, amount: int = 5) -> Reservation:
        """Reserve, and give back what the ledger says."""
        assert self.claimed is not None
        send_by = time.monotonic() + SEND_BY_SECONDS
        return ledger.reserve(self.claimed.lease, self.stage.effect, "test.pay", {"amount": amount}, send_by=send_by)

    def reserve(self) -> "Hand":
        reservation = self.ask()
        assert isinstance(reservation, Reserved), reservation
        self.reserved = reservation
        return self

    def act(self) -> Answer:
        """Let the request leave and the provider act; what it answers is not recorded yet."""
        assert self.reserved is not None
        self.reserved.call.check()
        try:
            receipt = self.stage.provider.send(self.reserved.call, 5)
        except Exception as error:  # noqa: BLE001 - as `context` does
            return answer_of(error)
        return Answer(AnswerKind.RECEIPT, receipt=self.stage.effect.dump_receipt(receipt))

    def record(self, answer: Answer) -> EffectState:
        assert self.reserved is not None
        assert self.claimed is not None
        lease = self.claimed.lease
        return ledger_answers.record(
            lease.run_id, lease.step_id, self.reserved.effect_id, self.reserved.send_id, answer
        )

    def fail(self, error: Exception) -> EffectState:
        """Record what the exception says about this send."""
        return self.record(answer_of(error))

    def settle(self, outcome: Outcome | None = None) -> Decision:
        assert self.claimed is not None
        data = PayState(amount=5, receipt_id="x").model_dump(mode="json")
        return claims.settle(self.claimed.lease, outcome or Done(Goto(("done",)), data), rng=Random(0))

    def settle_failed(self) -> Decision:
        error = answer_of(Transient("later")).error
        assert error is not None
        return self.settle(Failed(FailureKind.NEVER_SENT, error))

    def settle_doubtful(self) -> Decision:
        return self.settle(InDoubt())

    def lose_lease(self) -> "Hand":
        """Somebody believes that this worker is dead. It is not."""
        assert sweeps.free_lost_tasks([self.name]) == 1
        return self


def assert_sound(run_id: UUID, provider: Provider) -> None:
    """What holds for each run at any quiet moment: P3 and P5 in the provider's books, P13, P15, P10."""
    run = WorkflowRun.objects.get(pk=run_id)
    assert_acts_once(provider)
    assert_chain(run)
    rows = list(SideEffect.objects.filter(run=run))
    assert_legal(rows, provider)
    if run.ended_at is not None:
        assert not [row for row in rows if row.state in EFFECT_OPEN], "P15: it ended open"
        open_steps = StepRun.objects.filter(run=run, ended_at__isnull=True)
        assert not open_steps.exists(), "an ended run has an open step"
    else:
        assert_has_next(run)


def assert_acts_once(provider: Provider) -> None:
    assert len(provider.acts) == len(set(provider.acts)), f"the provider acted twice under one key: {provider.acts}"


def assert_chain(run: WorkflowRun) -> None:
    """P13: each event's digest covers the one before it, and nothing is missing."""
    previous = ""
    for place, event in enumerate(RunEvent.objects.filter(run=run).order_by("sequence"), start=1):
        assert event.sequence == place
        assert event.previous_digest == previous
        assert event.digest == journal.digest_of(event)
        previous = event.digest
    assert run.event_digest == previous


def assert_legal(rows: list[SideEffect], provider: Provider) -> None:
    for row in rows:
        if row.state == EffectState.CONFIRMED and not row.verdict:
            assert row.key in provider.acts, "CONFIRMED, and the provider's books know nothing of it"
        if row.state in (EffectState.PLANNED, EffectState.REJECTED):
            assert row.key not in provider.acts, f"{row.state}, and the provider did it"
        if row.state == EffectState.UNKNOWN:
            assert row.in_doubt_since is not None
        assert row.sends.filter(kind="send").count() == row.send_count


def assert_has_next(run: WorkflowRun) -> None:
    """P10: a run that has not ended has a next thing, or says what it needs a person for."""
    if run.parked_reason:
        assert run.parked_detail
        return
    for step in StepRun.objects.filter(run=run, ended_at__isnull=True):
        if step.needs_person:
            assert run.alert, "a person is needed, and nobody is told"
        else:
            timed = step.wake_at or step.resend_at or step.must_end_by
            assert timed or step.state == StepState.WAITING_HUMAN, f"limbo: {step.name} is {step.state} without a time"


def state_of(run_id: UUID) -> RunState:
    return RunState(WorkflowRun.objects.get(pk=run_id).state)
