"""Reads: what people and steps may see, filtered by owner, tenant and right. Never writes, never locks."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from django.db.models import Model, Q, QuerySet

from durableflows.core import registry
from durableflows.core.states import ApprovalState
from durableflows.errors import NotFoundError
from durableflows.models import ApprovalDecision, ApprovalRequest, WorkflowRun
from durableflows.tenants import acts_in, tenants_of
from durableflows.transactions import database

Person: TypeAlias = Any
"""The project's user, logged in or not: any model with `pk`, `is_active` and `has_perm`."""

Row = TypeVar("Row", bound=Model)

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


def last_decision(run_id: UUID, step_name: str, item_key: str = "") -> DecisionView:
    """The newest closed request of an approval step, in the branch of this item. NotFoundError before any decision."""
    requests = ApprovalRequest.objects.using(database()).filter(run_id=run_id, step__name=step_name)
    requests = requests.filter(step__item_key=item_key)
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
    """The runs a person may see: the own ones, and with the right to view or operate all of the person's tenants.

    None: trusted code. Raises TenantsUnknown.
    """
    runs = WorkflowRun.objects.using(database())
    if person is None:
        return runs
    if person.pk is None:
        return runs.none()
    own = Q(owner_id=person.pk)
    if not (person.has_perm(OPERATE) or person.has_perm(VIEW)):
        return runs.filter(own)
    tenants = tenants_of(person)
    return runs if tenants is None else runs.filter(own | Q(tenant__in=sorted(tenants)))


def may_operate(run: WorkflowRun, person: Person | None) -> bool:
    """Has the person the right to operate runs, in this run's tenant? None: trusted code. Raises TenantsUnknown."""
    return person is None or (person.has_perm(OPERATE) and acts_in(person, run.tenant))


def of_tenants(rows: QuerySet[Row], person: Person, path: str) -> QuerySet[Row]:
    """Only the rows of tenants that the person acts in; `path` leads to the tenant's name. Raises TenantsUnknown."""
    tenants = tenants_of(person)
    return rows if tenants is None else rows.filter(**{f"{path}__in": sorted(tenants)})


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
    """Has the person the right, in this tenant, and is not excluded as the requester? Superusers too (R27)."""
    return not refusal(request, person)


def refusal(request: ApprovalRequest, person: Person) -> str:
    """Say why the person may not answer; '' when nothing about the person is in the way."""
    if request.exclude_requester and request.requester_id is not None and request.requester_id == person.pk:
        return "you asked for this yourself: somebody else must decide"
    if not acts_in(person, request.tenant):
        return f"{person} may not answer this: it is of another tenant"
    if not getattr(person, "is_active", False) or not person.has_perm(request.permission):
        return f"{person} may not answer this: the permission {request.permission} is needed"
    return ""


def requests_for(person: Person) -> QuerySet[ApprovalRequest]:
    """The requests a person may see: the own ones; of the person's tenants those that ask for a right the person has
    and those answered, with the right to view or operate all. Closed ones too: who comes second must be told who
    decided (R22). Raises TenantsUnknown.
    """
    requests = ApprovalRequest.objects.using(database()).select_related("run")
    if person.pk is None:
        return requests.none()
    own, tenants = Q(requester_id=person.pk), tenants_of(person)
    within = Q() if tenants is None else Q(tenant__in=sorted(tenants))
    if person.has_perm(OPERATE) or person.has_perm(VIEW_REQUESTS):
        return requests if tenants is None else requests.filter(within | own)
    answered = ApprovalDecision.objects.using(database()).filter(actor_id=person.pk).values("request_id")
    theirs = Q(permission__in=_held_permissions(person)) | Q(pk__in=answered)
    return requests.filter(own | (within & theirs))


def waiting_for(person: Person, *, now: datetime) -> QuerySet[ApprovalRequest]:
    """The open requests that the person may answer at this time, and has not answered yet."""
    requests = ApprovalRequest.objects.using(database()).select_related("run")
    if person.pk is None:
        return requests.none()
    votes = ApprovalDecision.objects.using(database()).filter(actor_id=person.pk, voided_at__isnull=True)
    open_ones = of_tenants(requests, person, "tenant").filter(state=ApprovalState.OPEN, expires_at__gt=now)
    open_ones = open_ones.filter(permission__in=_held_permissions(person))
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
