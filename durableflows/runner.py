"""One attempt of one step: claim -> perform -> settle. No transaction is open while user code runs, except in
`atomic=True` steps, where the user's writes and the settlement commit together.

Called by the Celery tasks and by `testing`. Holds no opinion: what follows is decided in `core.decide`.
"""

import os
import random
import time
from dataclasses import replace
from functools import partial
from uuid import UUID

from billiard.exceptions import SoftTimeLimitExceeded
from django.db import InterfaceError, OperationalError

from durableflows import candidates, claims, classifiers, clock, decisions, integrity, ledger_facts, watching
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.context import RunContext
from durableflows.core import edits, log_lines, registry
from durableflows.core import state as states
from durableflows.core.approval import ApprovalSpec, amount_among
from durableflows.core.classify import describe, failure_of
from durableflows.core.decide import Decision
from durableflows.core.definition import StepDefinition, StepKind, WorkflowDefinition
from durableflows.core.directives import Succeed
from durableflows.core.outcomes import (
    Asked,
    Conflict,
    Done,
    ErrorInfo,
    Failed,
    FailureKind,
    Halted,
    Outcome,
    Question,
    Refused,
)
from durableflows.core.payload import JSON, check_size, mask_texts, storable_text
from durableflows.core.returned import Place, directive_of
from durableflows.core.secrecy import mask_text
from durableflows.core.undo import UNDOES, arguments_of
from durableflows.errors import EffectOpen, InvalidState, LeaseLost, NotFoundError, RunHalted, StateConflict
from durableflows.leases import Claim
from durableflows.models import ApprovalRequest, WorkflowRun
from durableflows.notes import note
from durableflows.transactions import (
    database,
    is_repeatable,
    let_be_silent,
    limit_waits,
    patiently,
    transact_durably,
)

logger = log_lines.logger("durableflows.runner")

_random = random.SystemRandom()


def run_step(run_id: UUID, step_id: UUID, *, task_id: str = "") -> bool:
    """Make one attempt at a step, if it is READY and due. False: there was nothing to do.

    Crash   at any boundary: the rows say how far it got, and the sweeps go on from there
    """
    began = time.monotonic()
    try:
        claim = claims.claim(run_id, step_id, task_id=task_id, pid=os.getpid())
    except NotFoundError as error:  # a message that outlived its run, or its database
        logger.info("a message for nothing: %s", error)
        return False
    if claim is None:
        return False
    cross(Boundary.CLAIM_AFTER_COMMIT)
    definition = registry.get(claim.lease.workflow, claim.lease.version)
    step = definition.step(claim.lease.step)
    settle_by = began + step.timeout_seconds
    with watching.attempt(claim, step):
        try:
            if step.atomic:
                _perform_and_settle(claim, definition, step, settle_by)
            else:
                _settle(claim, step, perform(claim, definition, step), settle_by)
        except LeaseLost as lost:
            logger.warning("run %s: %s", run_id, lost)
    return True


def perform(claim: Claim, definition: WorkflowDefinition, step: StepDefinition) -> Outcome:
    """Run the user's part and say how it ended; what it raises becomes a value. Only LeaseLost passes."""
    try:
        watching.check_limit()
        return _perform(claim, definition, step)
    except EffectOpen as unsettled:
        assert isinstance(unsettled.outcome, Outcome)
        return unsettled.outcome
    except RunHalted:
        return Halted()
    except Exception as error:
        if step.atomic and isinstance(error, OperationalError) and is_repeatable(error):
            raise  # the whole transaction is done again
        return _failed(claim, step, error)


def _failed(claim: Claim, step: StepDefinition, error: Exception) -> Failed:
    watching.raised(error)
    if isinstance(error, SoftTimeLimitExceeded):
        text = f"{step.name} did not end within {step.timeout_seconds:g} s"
        logger.warning("run %s: %s", claim.lease.run_id, text, exc_info=error)
        return Failed(FailureKind.TRANSIENT, describe(TimeoutError(text)))
    if isinstance(error, OperationalError | InterfaceError):
        return Failed(FailureKind.TRANSIENT, describe(error))
    error = classifiers.outside(error, step)
    failed = failure_of(error, step)
    if failed.kind is FailureKind.OUR_CODE:
        logger.error("run %s: step %s has an error in its code", claim.lease.run_id, step.name, exc_info=error)
    if failed.kind is FailureKind.INTEGRITY:
        logger.error("run %s: step %s: %s", claim.lease.run_id, step.name, failed.error.text)
    return failed


def _perform(claim: Claim, definition: WorkflowDefinition, step: StepDefinition) -> Outcome:
    context = RunContext(claim, definition, step)
    if step.kind is StepKind.UNDO:
        return _undone(claim, definition, context)
    if step.kind is StepKind.APPROVAL:
        assert step.approval is not None
        return _asked(step, step.approval, context)
    # Never after a send of ours: an effect or reservation of this very step must not make its own recheck fail.
    if not claim.had_sends:
        lapsed = decisions.doubt(claim.lease, definition, step, partial(question_of, context=context))
        if lapsed:
            return Failed(FailureKind.NEEDS_HUMAN, ErrorInfo("", "approval_lapsed", lapsed))
    if step.recheck is not None and not claim.had_sends:
        verdict = step.recheck(context)
        if verdict is False or isinstance(verdict, str):
            return Refused(storable_text(mask_text(verdict or f"{step.recheck.__name__} said no")))
    assert step.function is not None
    returned = step.function(definition.workflow, context)
    directive = directive_of(returned, Place(step, definition, is_item=claim.is_item))
    if isinstance(directive, Succeed):
        check_size(directive.result, settings().MAX_STATE_BYTES, f"the result of {step.name}")
        integrity.refuse_secrets(directive.result, f"the result of {step.name}")
    return Done(directive, states.dump(context.state), context.given_result, tuple(context.notes))


def _undone(claim: Claim, definition: WorkflowDefinition, context: RunContext) -> Outcome:
    """Undo what another step did: by the effect that it declares, given those arguments and the receipt."""
    original = ledger_facts.original_of(UUID(str(claim.input[UNDOES])))
    effect = definition.effects[original.effect]
    assert effect.undo is not None
    arguments = arguments_of(effect, original.arguments, original.receipt)
    context.effect(effect.undo, operation=None, **arguments)
    return Done(Succeed(), claim.data)


def _asked(step: StepDefinition, spec: ApprovalSpec, context: RunContext) -> Asked:
    """What a person is asked; refused when it is not fit to be stored."""
    question = fit(question_of(spec, context), f"what {step.name} asks")
    return Asked(question if question.unneeded else _with_people(spec, question, context))


def fit(question: Question, what: str) -> Question:
    """The question, if it may be stored. Raises InvalidState for one that is too large, or has a secret in it."""
    facts: dict[str, JSON] = {"title": question.title, "binding": question.binding, "context": question.context}
    facts["form"] = question.form
    check_size(facts, settings().MAX_STATE_BYTES, what)
    integrity.refuse_secrets(facts, what)
    return question


def _with_people(spec: ApprovalSpec, question: Question, context: RunContext) -> Question:
    """Look whether there is anybody who could answer, so that it is known at once when there is not."""
    run = WorkflowRun.objects.using(database()).select_related("owner").get(pk=context.id)
    request = ApprovalRequest(
        run=run,
        tenant=run.tenant,
        requester=run.owner,
        exclude_requester=spec.exclude_requester,
        exclude_delegate=spec.exclude_delegate,
    )
    by = spec.asked_anew_of(question.amount)
    return replace(question, can_be_answered=candidates.can_be_answered(request, by, clock.now()))


def question_of(spec: ApprovalSpec, context: RunContext) -> Question:
    """Compute what a person is asked: the user's facts, the title with their names filled in, and the amount.

    What looks like a secret is masked in the context, which often quotes others; what is bound is left as it is
    """
    facts = spec.shows(context).dump()
    binding, shown = facts["binding"], mask_texts(facts["context"])
    assert isinstance(binding, dict)
    assert isinstance(shown, dict)
    given = spec.amount(context) if callable(spec.amount) else None
    amount, binding = amount_among(spec, binding, given)
    return Question(
        title=_title(spec.title, {**shown, **binding}),
        binding=binding,
        context=shown,
        amount=amount,
        form=[] if spec.edits is None else edits.dump(edits.form(spec.edits, binding)),
        unneeded=spec.band_words(amount) if spec.asked_of(amount) is None else "",
    )


def _title(template: str, facts: dict[str, JSON]) -> str:
    words = {name: _word(value) for name, value in facts.items()}
    try:
        return storable_text(template.format_map(words))
    except (KeyError, IndexError, ValueError) as error:
        raise InvalidState(f"the title {template!r} names a fact that `shows` does not give: {error}") from None


def _word(value: JSON) -> str:
    if isinstance(value, dict) and set(value) == {"amount_minor", "currency"}:
        from durableflows.core.money import Money

        return Money(int(str(value["amount_minor"])), str(value["currency"])).words
    return str(value)


class _NotDone(Exception):
    """Not an error: it rolls the body's writes back and carries the outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def _perform_and_settle(claim: Claim, definition: WorkflowDefinition, step: StepDefinition, settle_by: float) -> None:
    """Let the body's writes and the checkpoint commit together: exactly once (S2.14).

    User code first, engine locks last, and the whole of it again when the database asks for it (P11).
    """

    @transact_durably
    def together() -> None:
        let_be_silent()
        outcome = perform(claim, definition, step)
        if not isinstance(outcome, Done):
            raise _NotDone(outcome)
        limit_waits()
        for text in outcome.notes:
            note(claim.lease, text)
        settled.append((outcome, claims.settle(claim.lease, outcome, rng=_random, base=claim.data)))

    settled: list[tuple[Outcome, Decision]] = []
    try:
        together()
        watching.settled(*settled[-1])
    except _NotDone as failed:
        _settle(claim, step, failed.outcome, settle_by)
    except Exception as error:  # noqa: BLE001 - refused at the commit, or deadlocked too often: nothing of it remains
        # A connection lost at the commit may have committed: then the lease is gone, and this writes nothing.
        _settle(claim, step, _unsettled(claim, step, error), settle_by)


def _settle(claim: Claim, step: StepDefinition, outcome: Outcome, settle_by: float) -> None:
    """Settle, also when the database is away for as long as the step may take: the lease lasts a little longer.

    Giving up earlier would leave the lease to run out, and the body would run again though it has ended well.

    An outcome that cannot be stored (a state that is too large) is a failure of its own: left alone, the step would
    start again whenever its lease runs out, and look as if it killed its workers.
    """
    left_seconds = max(settle_by - time.monotonic(), settings().LEASE_MARGIN_SECONDS)
    settle = patiently(claims.settle, give_up_after_seconds=left_seconds)
    try:
        watching.settled(outcome, settle(claim.lease, outcome, rng=_random, base=claim.data))
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it was, the attempt must end
        unsettled = _unsettled(claim, step, error)
        watching.settled(unsettled, settle(claim.lease, unsettled, rng=_random))


def _unsettled(claim: Claim, step: StepDefinition, error: Exception) -> Outcome:
    """What an attempt came to whose outcome was not taken."""
    return Conflict(error.fields) if isinstance(error, StateConflict) else _failed(claim, step, error)
