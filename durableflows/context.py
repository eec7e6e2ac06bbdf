"""The run as a step's body sees it. Owns one attempt's use of effects; writes rows only through `ledger`."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import TypeVar, cast

from billiard.exceptions import SoftTimeLimitExceeded
from django.db import connections

from durableflows import (
    artifacts,
    classifiers,
    given,
    integrity,
    ledger,
    ledger_answers,
    ledger_facts,
    ledger_together,
    model_calls,
    pinned,
    providers,
    secrets,
    selectors,
    wall_time,
    watching,
)
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.core import shape
from durableflows.core import state as states
from durableflows.core.breaker import Health, health_of
from durableflows.core.classify import answer_of
from durableflows.core.definition import (
    HARD_LIMIT_AFTER_SECONDS,
    SEND_BY_SECONDS,
    EffectDefinition,
    StepDefinition,
    StepKind,
    WorkflowDefinition,
)
from durableflows.core.effects import EffectCall
from durableflows.core.outcomes import NEGATIVE, Answer, AnswerKind, InDoubt, Outcome, Waits
from durableflows.core.payload import JSON, check_size
from durableflows.core.pins import Manifest
from durableflows.core.references import ArtifactRef, SecretRef
from durableflows.core.refs import StepRef
from durableflows.core.run import BINARY, Child, Decision, ModelCall, Result, Run, Signal
from durableflows.core.state import WorkflowState
from durableflows.core.states import EffectState
from durableflows.errors import EffectOpen, InvalidDefinition, Permanent, Transient, UnknownOutcome
from durableflows.leases import Claim
from durableflows.ledger import Rejected, Reserved, Stored, Unsettled
from durableflows.notes import note
from durableflows.transactions import database, let_be_silent, limit_waits, patiently, transact_durably

R = TypeVar("R")

# Of the seconds between a step's soft and its hard limit, those that are left for what comes after the receipt.
KEPT_FOR_SETTLING_SECONDS = 2.0


class RunContext(Run[WorkflowState]):
    """One attempt's view of its run."""

    def __init__(self, claim: Claim, definition: WorkflowDefinition, step: StepDefinition) -> None:
        self._claim, self._definition, self._step = claim, definition, step
        self._used: set[str] = set()
        self.notes: list[str] = []
        self._record_by = time.monotonic() + step.timeout_seconds + HARD_LIMIT_AFTER_SECONDS - KEPT_FOR_SETTLING_SECONDS
        self.id = str(claim.lease.run_id)
        self.state = states.load(definition.state_type, claim.data)
        self.owner_name, self.tenant, self.subject = claim.owner_name, claim.tenant, claim.subject
        self.manifest = Manifest(claim.manifest, pinned.load)
        self.item, self.item_key = claim.input.get("item"), claim.lease.item_key
        self.given_result: JSON = None

    @property
    def signal(self) -> Signal | None:
        """The signal that this step has waited for. See `Run.signal`."""
        return given.signal_of(self._claim.input.get("signal"))

    @property
    def child(self) -> Child | None:
        """The run that this step has waited for. See `Run.child`."""
        end = self._claim.input.get("child")
        return given.child_of(end) if isinstance(end, dict) and "state" in end else None

    def results(self, step: StepRef) -> tuple[Result, ...]:
        """What the branches of a step came to. See `Run.results`."""
        return given.results_of(self._claim.lease.run_id, self._claim.lease.step_id, step.name)

    def give_result(self, value: object) -> None:
        """Give this step's result to the join that gathers it. See `Run.give_result`."""
        what = f"the result of {self._step.name}"
        result = shape.plain_marked(value, what=what)
        check_size(result, settings().MAX_STATE_BYTES, what)
        integrity.refuse_secrets(result, what)
        self.given_result = result

    def artifact(self, name: str, content: bytes | str, *, content_type: str = BINARY) -> ArtifactRef:
        """Keep a large value in the project's storage. See `Run.artifact`."""
        return artifacts.keep(self._claim.lease, name, content, content_type)

    def read_artifact(self, ref: ArtifactRef) -> bytes:
        """Read a large value back. See `Run.read_artifact`."""
        return artifacts.read(self._claim.lease, ref)

    def secret(self, ref: SecretRef) -> str:
        """Look a secret up. See `Run.secret`."""
        return secrets.resolve(ref)

    def effect(self, effect: EffectDefinition[R], /, *, operation: str | None = None, **arguments: object) -> R:
        """Do an action outside once, and return its receipt. See `Run.effect`."""
        name = operation or effect.name
        self._check(effect, name)
        data = effect.dump_arguments(arguments)
        check_size(data, settings().MAX_STATE_BYTES, f"what {name} is called with")
        integrity.refuse_secrets(data, f"what {name} is called with")
        if effect.transactional:
            return self._together(effect, name, data)
        turn_key = effect.turn_key(data)
        cross(Boundary.EFFECT_BEFORE_RESERVE)
        send_by = time.monotonic() + SEND_BY_SECONDS
        reserved = ledger.reserve(
            self._claim.lease,
            cast(EffectDefinition[object], effect),
            name,
            data,
            send_by=send_by,
            turn_key=turn_key,
        )
        self._used.add(name)
        if isinstance(reserved, Stored):
            return effect.load_receipt(reserved.receipt)
        if isinstance(reserved, Unsettled):
            raise EffectOpen(f"{name}: {reserved.reason}", outcome=_unsettled(name, reserved))
        if isinstance(reserved, Rejected):
            raise Permanent(reserved.reason)
        return self._act(effect, name, reserved)

    def _together(self, effect: EffectDefinition[R], name: str, data: dict[str, JSON]) -> R:
        """Let what the effect writes, its row and its receipt commit together: exactly once, and never in doubt."""
        declared, lease = cast(EffectDefinition[object], effect), self._claim.lease
        cross(Boundary.EFFECT_BEFORE_RESERVE)

        @transact_durably
        def together() -> JSON:
            send_by = time.monotonic() + SEND_BY_SECONDS
            intent = ledger_together.intend(lease, declared, name, data, send_by=send_by)
            if isinstance(intent, Stored):
                return intent.receipt
            let_be_silent()
            receipt = _act_here(declared, intent.call, data)
            limit_waits()
            ledger_together.keep(lease, declared, name, data, receipt, intent)
            cross(Boundary.TOGETHER_BEFORE_COMMIT)
            return receipt

        receipt = together()
        self._used.add(name)
        cross(Boundary.EFFECT_AFTER_RECEIPT)
        return effect.load_receipt(receipt)

    @contextmanager
    def model_call(self, model: str, *, estimate_usd: Decimal) -> Iterator[ModelCall]:
        """Call a model within the budget. See `Run.model_call`."""
        call = ModelCall(model, estimate_usd)
        if self._step.atomic:
            raise InvalidDefinition(f"{self._step.name} is atomic: call the model in a step of its own before it")
        if self._step.kind is StepKind.APPROVAL:  # its facts are computed again for each answer, without a lease
            raise InvalidDefinition(f"{self._step.name} is an approval: call the model in a step before it")
        call_id = model_calls.hold(self._claim.lease, model, estimate_usd)
        failed = True
        try:
            with watching.call(None, watching.Call("model", model)) as watched:
                yield call
                watched.cost_usd = None if call.cost_usd is None else float(call.cost_usd)
            failed = False
        finally:
            settle = patiently(model_calls.settle, give_up_after_seconds=KEPT_FOR_SETTLING_SECONDS)
            settle(self._claim.lease.run_id, call_id, call.cost_usd, failed=failed)

    def decision(self, step: StepRef) -> Decision:
        """Return what was decided at an approval of this run. Raises NotFoundError before any decision."""
        return selectors.last_decision(self._claim.lease.run_id, step.name, self.item_key)

    def note(self, text: str) -> None:
        """Write a line into the run's history, for people. Nothing when the run is only looked at, without a lease."""
        if not self._claim.lease.is_held:
            return
        if self._step.atomic:  # written now, it would lock the run for as long as the body goes on (P11)
            self.notes.append(text)
        else:
            note(self._claim.lease, text)

    def _check(self, effect: EffectDefinition[R], name: str) -> None:
        if effect.name not in {declared.name for declared in self._step.effects}:
            raise InvalidDefinition(
                f"{self._definition.name}.{self._step.name} uses effect {effect.name}, which it does not declare: "
                f"add it to effects=(...) of the step"
            )
        if name in self._used:
            raise InvalidDefinition(
                f"{self._definition.name}.{self._step.name} does {name} twice in one attempt: the second would get the "
                "first one's receipt. Give each its own name: run.effect(..., operation='second')"
            )

    def _act(self, effect: EffectDefinition[R], name: str, reserved: Reserved) -> R:
        cross(Boundary.EFFECT_AFTER_RESERVE)
        with watching.call(None, _watched(effect, reserved)) as watched:
            answer, value, error = _call(effect, reserved)
            watched.end()
            cross(Boundary.EFFECT_AFTER_ANSWER)
            state = self._record(reserved, answer)
            watched.answer, watched.receipt, watched.state = str(answer.kind), answer.receipt, str(state)
            watched.error_class = answer.error.error_class if answer.error is not None else ""
        cross(Boundary.EFFECT_AFTER_RECEIPT)
        if error is not None and not isinstance(error, Exception):
            raise error  # SystemExit and the like: recorded as unknown, then obeyed
        if answer.kind is AnswerKind.RECEIPT and state is EffectState.CONFIRMED:
            return cast(R, value)
        if state is EffectState.CONFIRMED:
            # Another send or a lookup brought the receipt meanwhile: this answer is about this send only (rule 7).
            return effect.load_receipt(ledger_facts.receipt_of(reserved.effect_id))
        if answer.kind is AnswerKind.ACCEPTED and state is EffectState.ACCEPTED:
            raise EffectOpen(f"{name} was accepted", outcome=Waits(f"{name} was accepted by {effect.provider}"))
        if answer.kind is AnswerKind.CREDENTIALS and state is EffectState.PLANNED:
            held = providers.held_by_credentials(effect.provider)
            raise EffectOpen(held.reason, outcome=held) from error
        if error is not None and answer.kind in NEGATIVE and state in (EffectState.PLANNED, EffectState.REJECTED):
            raise error  # only when the row believes it: a fenced worker's "no" must not send a body another way
        outcome = InDoubt(answer.error, answer.retry_after_seconds)
        raise EffectOpen(f"{name} may have happened", outcome=outcome) from error

    def _record(self, reserved: Reserved, answer: Answer) -> EffectState:
        """Write what the provider said for as long as this process may live (P2); after that the effect is in doubt."""
        try:
            return self._record_patiently(reserved, answer)
        except SoftTimeLimitExceeded:
            # The step's time is over, and the hard limit has not struck: the receipt comes first. The connection may
            # have been left in the middle of a statement.
            connections[database()].close()
            self._record_patiently(reserved, answer)
            raise

    def _record_patiently(self, reserved: Reserved, answer: Answer) -> EffectState:
        left_seconds = self._record_by - time.monotonic()
        record = patiently(ledger_answers.record, give_up_after_seconds=left_seconds)
        lease = self._claim.lease
        return record(lease.run_id, lease.step_id, reserved.effect_id, reserved.send_id, answer)


def _watched(effect: EffectDefinition[R], reserved: Reserved) -> watching.Call:
    call = reserved.call
    return watching.Call(
        "send",
        effect.name,
        provider=effect.provider,
        operation=call.operation,
        key=call.key,
        number=call.send,
        version=effect.version,
        timeout_seconds=call.timeout_seconds,
        request_digest=reserved.request_digest,
    )


def _unsettled(name: str, reserved: Unsettled) -> Outcome:
    if reserved.state is EffectState.ACCEPTED:
        return Waits(f"{name}: {reserved.reason}")
    return InDoubt()


def _call(effect: EffectDefinition[R], reserved: Reserved) -> tuple[Answer, R | None, BaseException | None]:
    """Call the effect's function: whatever it does, an answer comes out that can be stored."""
    sent = False
    try:
        arguments = effect.load_arguments(reserved.arguments)
        with wall_time.limit(reserved.call.timeout_seconds, effect.name):
            reserved.call.check()
            sent = True
            value = effect.function(reserved.call, **arguments)
        receipt = _receipt(effect, value)
        is_pending = effect.accepted is not None and effect.accepted(value)
        kind = AnswerKind.ACCEPTED if is_pending else AnswerKind.RECEIPT
        return Answer(kind, receipt=receipt, health=Health.WELL), value, None
    except BaseException as raised:  # noqa: BLE001 - an outcome must be recorded whatever was raised
        error = classifiers.inside(raised)
        answer = answer_of(error)
        if not sent and answer.kind is AnswerKind.UNKNOWN:
            answer = Answer(AnswerKind.NOT_SENT, error=answer.error)
        elif sent:
            answer = replace(answer, health=health_of(answer.kind, error))
        return answer, None, error


def _act_here(effect: EffectDefinition[object], call: EffectCall, data: dict[str, JSON]) -> JSON:
    """Call the function of a transactional effect; whatever it raises rolls back what it has written."""
    arguments = effect.load_arguments(data)
    try:
        with ledger_together.only_here(effect.name), wall_time.limit(effect.timeout_seconds, effect.name):
            return _receipt(effect, effect.function(call, **arguments))
    except UnknownOutcome as error:  # of its time, or raised by a habit: nothing can be unknown here
        raise Transient(f"{error}; it was rolled back") from error


def _receipt(effect: EffectDefinition[R], value: R) -> JSON:
    dump: Callable[[object], JSON] = effect.dump_receipt
    return dump(value)
