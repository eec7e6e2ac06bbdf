"""Reads: what people and steps may see, filtered by owner, tenant and right. Never writes, never locks."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from django.db.models import Model, Q, QuerySet

from durableflows.core import registry
from durableflows.core.states import ApprovalState
from durableflows.errors import NotFoundError
from durableflows.models import ApprovalDecision, ApprovalRequest, WorkflowRun
from durableflows.transactions import database

Person: TypeAlias = Any
"""The project's user, logged in or not: any model with `pk`, `is_active` and `has_perm`."""

OPERATE = "durableflows.operate_run"
VIEW = "durableflows.view_workflowrun"
ANSWER = "durableflows.answer_approval"
VIEW_REQUESTS = "durableflows.view_approvalrequest"


@dataclass(frozen=True, slots=True)
class DecisionView:
    """What was decided at an approval; see `core.run.Decision`."""

    approved: bool
    actor_name: str
    comment: str
    at: datetime


def last_decision(run_id: UUID, step_name: str) -> DecisionView:
    """The newest closed request of an approval step. Raises NotFoundError before any decision."""
    requests = ApprovalRequest.objects.using(database()).filter(run_id=run_id, step__name=step_name)
    request = requests.exclude(state=ApprovalState.OPEN).order_by("-created_at", "-id").first()
    if request is None or request.closed_at is None:
        raise NotFoundError(f"nothing was decided yet at {step_name}")
    last = request.decisions.filter(voided_at__isnull=True).order_by("-at").first()
    return DecisionView(
        approved=request.state == ApprovalState.APPROVED,
        actor_name=last.actor_name if last else "",
        comment=last.comment if last else "",
        at=request.closed_at,
    )


def runs_for(person: Person | None) -> QuerySet[WorkflowRun]:
    """The runs a person may see: all with the right to view or operate, else the own ones. None: trusted code."""
    runs = WorkflowRun.objects.using(database())
    if person is None or person.has_perm(OPERATE) or person.has_perm(VIEW):
        return runs
    return runs.filter(owner_id=person.pk) if person.pk else runs.none()


def run_for(run_id: UUID | str, person: Person | None) -> WorkflowRun:
    """One run that the person may see. Raises NotFoundError, also when it exists and is somebody else's (S2.25)."""
    try:
        wanted = run_id if isinstance(run_id, UUID) else UUID(str(run_id))
    except ValueError:
        raise NotFoundError(f"{str(run_id)[:60]!r} is not a run's id") from None
    run = runs_for(person).filter(pk=wanted).first()
    if run is None:
        raise NotFoundError(f"there is no run {wanted}, or none that you may see")
    return run


def runs_of(subject: Model) -> QuerySet[WorkflowRun]:
    """The runs about an object, newest first."""
    from django.contrib.contenttypes.models import ContentType

    kind = ContentType.objects.get_for_model(subject)
    return WorkflowRun.objects.using(database()).filter(subject_type=kind, subject_id=str(subject.pk))


def may_answer(request: ApprovalRequest, person: Person) -> bool:
    """Has the person the right, and is not excluded as the requester? Superusers are excluded too (R27)."""
    return not refusal(request, person)


def refusal(request: ApprovalRequest, person: Person) -> str:
    """Say why the person may not answer; '' when nothing about the person is in the way."""
    if request.exclude_requester and request.requester_id is not None and request.requester_id == person.pk:
        return "you asked for this yourself: somebody else must decide"
    if not getattr(person, "is_active", False) or not person.has_perm(request.permission):
        return f"{person} may not answer this: the permission {request.permission} is needed"
    return ""


def requests_for(person: Person) -> QuerySet[ApprovalRequest]:
    """The requests a person may see: asked of a right the person has, the own ones, those answered; with the right
    to view or operate all. Closed ones too: who comes second must be told who decided (R22).
    """
    requests = ApprovalRequest.objects.using(database()).select_related("run")
    if person.pk is None:
        return requests.none()
    if person.has_perm(OPERATE) or person.has_perm(VIEW_REQUESTS):
        return requests
    answered = ApprovalDecision.objects.using(database()).filter(actor_id=person.pk).values("request_id")
    return requests.filter(Q(permission__in=_held_permissions(person)) | Q(requester_id=person.pk) | Q(pk__in=answered))


def waiting_for(person: Person, *, now: datetime) -> QuerySet[ApprovalRequest]:
    """The open requests that the person may answer at this time, and has not answered yet."""
    requests = ApprovalRequest.objects.using(database()).select_related("run")
    if person.pk is None:
        return requests.none()
    votes = ApprovalDecision.objects.using(database()).filter(actor_id=person.pk, voided_at__isnull=True)
    open_ones = requests.filter(state=ApprovalState.OPEN, expires_at__gt=now, permission__in=_held_permissions(person))
    own = Q(exclude_requester=True, requester_id=person.pk)
    return open_ones.exclude(own).exclude(pk__in=votes.values("request_id"))


def _held_permissions(person: Person) -> list[str]:
    """Which of the permissions that requests ask for the person has: those declared, and those of open requests.

    Open requests may be of a release that this process does not have; closed ones are too many to look through.
    """
    specs = [step.approval for one in registry.definitions() for step in one.steps.values() if step.approval]
    declared = {name for spec in specs for name in (spec.permission, *(rung.permission for rung in spec.ladder()))}
    open_ones = ApprovalRequest.objects.using(database()).filter(state=ApprovalState.OPEN)
    asked = open_ones.order_by().values_list("permission", flat=True).distinct()
    return sorted(name for name in {*declared, *asked} if person.has_perm(name))
