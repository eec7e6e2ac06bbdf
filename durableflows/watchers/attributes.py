"""What a trace says of a run, an attempt, a call: the one list of all that leaves, by name. Reads rows only.

Ids, numbers, digests, times and words of the engine: no text of an error, no argument, no receipt, no name of a person,
no key of an item (it may be one's address), no business key. Source: specification S3.41 to S3.48; P14.
"""

from collections.abc import Iterator
from datetime import datetime

from durableflows.core.outcomes import Failed, FailureKind, Refused
from durableflows.core.payload import JSON, sha256
from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, StepAttempt, StepRun, WorkflowRun
from durableflows.transactions import database
from durableflows.watching import Asked, Attempt, Call, Fact

Attributes = dict[str, str | int | float | bool | list[str]]

VERSIONS = ("structure", "state_schema", "engine", "code")
DIGESTS = ("effects", "prompts", "policies", "pins")
# Facts of history that are no texts of people, providers or projects.
TELLING = (
    *("step", "visit", "attempt", "state", "wake_at", "effect", "operation", "answer", "send"),
    *("checkpoint_sha256", "output_sha256", "request", "workflow", "version", "child", "model"),
)
SILENT_FAILURES = (FailureKind.PERMANENT,)


def of_run(run: WorkflowRun) -> Attributes:
    """Ids, versions and limits (S3.41, S3.42, S3.45)."""
    return {
        "durableflows.workflow.name": run.workflow,
        "durableflows.workflow.version": run.version,
        "durableflows.run.id": str(run.pk),
        "durableflows.run.parent_id": str(run.parent_id or ""),
        "durableflows.run.deadline": run.deadline_at.isoformat(),
        **_manifest(run.manifest),
    }


def _manifest(manifest: dict[str, JSON]) -> Attributes:
    """What the run pinned: versions of structure, effects (tools), prompts, model route, knowledge index (S3.42)."""
    found: Attributes = {f"durableflows.pinned.{name}": str(manifest[name]) for name in VERSIONS if name in manifest}
    for name in DIGESTS:
        pinned = manifest.get(name)
        if isinstance(pinned, dict):
            found |= {f"durableflows.pinned.{name}.{what}": str(value) for what, value in pinned.items()}
    return found


def of_attempt(attempt: Attempt, step: StepRun) -> Attributes:
    """Which try of what, on which state, until when, and why again (S3.41, S3.43, S3.45)."""
    claim, lease = attempt.claim, attempt.claim.lease
    found: Attributes = {
        "durableflows.workflow.name": lease.workflow,
        "durableflows.workflow.version": lease.version,
        "durableflows.run.id": str(lease.run_id),
        "durableflows.step.name": lease.step,
        "durableflows.step.id": str(lease.step_id),
        "durableflows.step.visit": lease.visit,
        "durableflows.attempt.id": str(lease.attempt_id),
        "durableflows.attempt.number": lease.attempt,
        "durableflows.state.sha256": sha256(claim.data),
        "durableflows.input.sha256": sha256(claim.input),
        "durableflows.checkpoint.sequence": claim.checkpoint_sequence,
        "durableflows.timeout_seconds": attempt.step.timeout_seconds,
        "durableflows.deadline": claim.deadline_at.isoformat(),
        "durableflows.lease.must_end_by": lease.must_end_by.isoformat(),
        "durableflows.lost_workers": step.lost_workers,
        **_manifest(claim.manifest),
    }
    if lease.item_key:
        found["durableflows.step.item_sha256"] = sha256(lease.item_key)
    before = _try_before(step, lease.attempt)
    if before is not None:
        found["durableflows.retry.after"] = before.outcome
        found["durableflows.retry.error_class"] = before.error_class
        found["durableflows.retry.backoff_seconds"] = before.delay_seconds or 0.0
    return found


def _try_before(step: StepRun, number: int) -> StepAttempt | None:
    rows = StepAttempt.objects.using(database()).filter(step=step, number__lt=number)
    return rows.order_by("-number").first()


def of_settlement(attempt: Attempt) -> Attributes:
    """What it came to (S3.43, S3.47). Without a decision the lease was lost, or the process is about to end."""
    decision = attempt.decision
    if decision is None:
        return {"durableflows.outcome": "not settled"}
    found: Attributes = {"durableflows.outcome": decision.outcome, "durableflows.step.next": list(decision.next_steps)}
    if decision.error is not None:
        found["error.type"] = decision.error.error_class or decision.error.code
        found["durableflows.error.code"] = decision.error.code
    if isinstance(attempt.outcome, Failed):
        found["durableflows.error.kind"] = str(attempt.outcome.kind)
    if attempt.step.recheck is not None:
        found["durableflows.policy.result"] = "refused" if isinstance(attempt.outcome, Refused) else "passed"
    if decision.delay_seconds is not None:
        found["durableflows.backoff_seconds"] = decision.delay_seconds
    if decision.wake_at is not None:
        found["durableflows.wake_at"] = decision.wake_at.isoformat()
    if decision.data is not None:
        found["durableflows.state.after_sha256"] = sha256(decision.data)
    if decision.output is not None:
        found["durableflows.output.sha256"] = sha256(decision.output)
    ends = [str(fact.data.get("state", "")) for fact in attempt.facts if fact.kind == "run.ended"]
    return found | ({"durableflows.run.state": ends[-1]} if ends else {})


def failure_of(attempt: Attempt) -> str:
    """The class of the error that the attempt ended with; '' when nothing failed that was not declared."""
    if not isinstance(attempt.outcome, Failed) or attempt.outcome.kind in SILENT_FAILURES:
        return ""
    return attempt.outcome.error.error_class or str(attempt.outcome.kind)


def of_call(about: Asked, call: Call) -> Attributes:
    """The intent: what is asked of whom, under which key, for which request (S3.44, S3.48)."""
    found: Attributes = {
        "durableflows.run.id": str(about.run_id),
        "durableflows.step.name": about.step,
        "durableflows.call": call.kind,
    }
    if call.kind == "model":
        return {**found, "gen_ai.operation.name": "chat", "gen_ai.request.model": call.name}
    found |= {
        "durableflows.effect.name": call.name,
        "durableflows.effect.version": call.version,
        "durableflows.effect.provider": call.provider,
        "durableflows.effect.operation": call.operation,
        "durableflows.effect.key": call.key,
        "durableflows.effect.number": call.number,
        "durableflows.timeout_seconds": call.timeout_seconds,
    }
    if call.request_digest:
        found["durableflows.effect.request_sha256"] = call.request_digest
    return found


def of_answer(call: Call) -> Attributes:
    """The receipt, by its digest, and where the ledger stands then (S3.44)."""
    found: Attributes = {"durableflows.effect.answer": call.answer, "durableflows.effect.state": call.state}
    if call.kind == "model":
        return {} if call.cost_usd is None else {"durableflows.cost_usd": call.cost_usd}
    if call.receipt is not None:
        found["durableflows.effect.receipt_sha256"] = sha256(call.receipt)
    if call.error_class:
        found["error.type"] = call.error_class
    return found


def of_fact(fact: Fact) -> Attributes:
    """What history says, without its texts."""
    found: Attributes = {}
    for name, value in fact.data.items():
        if name in TELLING and isinstance(value, str | int | float):
            found[f"durableflows.fact.{name}"] = value
    return found


def waits_before(step: StepRun, attempt: int) -> Iterator[tuple[str, datetime, Attributes]]:
    """The waits that this attempt ends: for its next try, for a timer, a signal or a child, for a person.

    Gives the step that has waited, since when, and for what.
    """
    before = _try_before(step, attempt)
    if before is not None and before.ended_at is not None:
        yield step.name, before.ended_at, {"durableflows.wait.for": before.outcome}
        return
    waited = RunEvent.objects.using(database()).filter(run=step.run_id, step=step, kind="step.waiting").first()
    if waited is not None:
        kind = next((word for word in ("signal", "child") if word in step.input), "timer")
        yield step.name, waited.at, {"durableflows.wait.for": kind}
    asked = step.came_from
    if asked is not None and (request := _request_of(asked)) is not None:
        yield asked.name, request.created_at, _decided(request)


def _request_of(step: StepRun) -> ApprovalRequest | None:
    return ApprovalRequest.objects.using(database()).filter(step=step).order_by("-created_at").first()


def _decided(request: ApprovalRequest) -> Attributes:
    """Who was asked what, and what was decided when, by reference: people are ids here (S3.46)."""
    rows = ApprovalDecision.objects.using(database()).filter(request=request).order_by("at")
    decisions = list(rows.values_list("pk", "verdict", "at", "actor_id"))
    return {
        "durableflows.wait.for": "person",
        "durableflows.approval.request_id": str(request.pk),
        "durableflows.approval.state": str(request.state),
        "durableflows.approval.decision_ids": [str(row[0]) for row in decisions],
        "durableflows.approval.verdicts": [str(row[1]) for row in decisions],
        "durableflows.approval.decided_at": [row[2].isoformat() for row in decisions],
        "durableflows.approval.actor_ids": [str(row[3] or "") for row in decisions],
    }
