"""Reads: what people and steps may see, filtered by owner, tenant and right. Never writes, never locks."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import Model, Q, QuerySet

from durableflows.core.states import ApprovalState
from durableflows.errors import NotFoundError
from durableflows.models import ApprovalRequest, WorkflowRun
from durableflows.transactions import database

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

    Person = AbstractBaseUser | AnonymousUser | Any

OPERATE = "durableflows.operate_run"
VIEW = "durableflows.view_workflowrun"
ANSWER = "durableflows.answer_approval"


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


def runs_for(person: "Person | None") -> QuerySet[WorkflowRun]:
    """The runs a person may see: all with the right to view or operate, else the own ones. None: trusted code."""
    runs = WorkflowRun.objects.using(database())
    if person is None or person.has_perm(OPERATE) or person.has_perm(VIEW):
        return runs
    return runs.filter(owner_id=person.pk) if person.pk else runs.none()


def run_for(run_id: UUID | str, person: "Person | None") -> WorkflowRun:
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


def may_answer(request: ApprovalRequest, person: "Person") -> bool:
    """Has the person the right, and is not excluded as the requester? Superusers are excluded too (R27)."""
    if not getattr(person, "is_active", False) or not person.has_perm(request.permission):
        return False
    return not (request.exclude_requester and request.requester_id is not None and request.requester_id == person.pk)


def requests_for(person: "Person") -> QuerySet[ApprovalRequest]:
    """The requests a person may see: those asked of a right the person has, and all with the right to operate."""
    requests = ApprovalRequest.objects.using(database()).select_related("run")
    if person.has_perm(OPERATE) or person.has_perm("durableflows.view_approvalrequest"):
        return requests
    asked = requests.filter(state=ApprovalState.OPEN).values_list("permission", flat=True).distinct()
    held = [permission for permission in asked if person.has_perm(permission)]
    return requests.filter(Q(permission__in=held) | Q(decisions__actor_id=person.pk)).distinct()
