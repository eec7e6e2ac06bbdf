"""Reads: what people and steps may see, filtered by owner, tenant and right. Never writes, never locks."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Model, Q, QuerySet
from pydantic import BaseModel

from durableflows import votes
from durableflows.core import edits, registry
from durableflows.core.approvers import GROUP, PERSON
from durableflows.core.keys import read_id
from durableflows.core.states import STEP_OPEN, ApprovalState
from durableflows.errors import InvalidState, NotFoundError
from durableflows.models import Addressee, ApprovalDecision, ApprovalRequest, StepRun, WorkflowRun
from durableflows.rights import Standing, shown_to
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
    edits: BaseModel | None = None


def last_decision(run_id: UUID, step_name: str, item_key: str = "") -> DecisionView:
    """The newest closed request of an approval step, in the branch of this item. NotFoundError before any decision."""
    requests = ApprovalRequest.objects.using(database()).filter(run_id=run_id, step__name=step_name)
    requests = requests.filter(step__item_key=item_key)
    requests = requests.exclude(state=ApprovalState.OPEN)
    request = requests.order_by("-step__visit", "-created_at", "-id").first()
    if request is None or request.closed_at is None:
        raise NotFoundError(f"nothing was decided yet at {step_name}")
    last = votes.deciding(request)
    return DecisionView(
        approved=request.state == ApprovalState.APPROVED,
        actor_name=last.actor_name if last else "",
        comment=last.comment if last else "",
        at=request.closed_at,
        edits=_edits(request, last),
    )


def _edits(request: ApprovalRequest, last: ApprovalDecision | None) -> BaseModel | None:
    """What the approver has changed, as the schema that the approval declares."""
    if last is None or not last.edits or request.state != ApprovalState.APPROVED:
        return None
    spec = registry.get(request.run.workflow, request.run.version).step(request.step.name).approval
    if spec is None or spec.edits is None:
        raise InvalidState(
            f"{request.step.name} was approved with changes, and this code has no edits= to read them by"
        )
    # Looked at once more: a row that was changed from outside does not raise what was asked.
    within = edits.read(spec.edits, last.edits, request.binding)
    return edits.value_of(spec.edits, within) if within else None


@dataclass(frozen=True, slots=True)
class Sight:
    """Which runs a person may see: the own ones, and all of these tenants. `tenants` None: all there are."""

    person_id: Any
    tenants: frozenset[str] | None

    def within(self, path: str = "") -> Q:
        """The same as a condition on rows from which `path` leads to the run, as "run__" does."""
        if self.tenants is None:
            return Q()
        if self.person_id is None:
            return Q(pk__in=[])
        own = Q(**{f"{path}owner_id": self.person_id})
        return own | Q(**{f"{path}tenant__in": sorted(self.tenants)}) if self.tenants else own


def sight_of(person: Person | None) -> Sight:
    """Say what a person sees: of others' runs those of the person's tenants, with the right to view or operate all.

    None: trusted code. Raises TenantsUnknown.
    """
    if person is None:
        return Sight(None, None)
    return Sight(person.pk, tenants_of(person) if sees_others(person) else frozenset())


def sees_others(person: Person) -> bool:
    """Has the person the right to see runs of others? Which of them, the tenants say."""
    return person.pk is not None and bool(person.has_perm(OPERATE) or person.has_perm(VIEW))


def runs_for(person: Person | None) -> QuerySet[WorkflowRun]:
    """The runs a person may see; see `sight_of`. Raises TenantsUnknown."""
    return WorkflowRun.objects.using(database()).filter(sight_of(person).within())


def may_see_run(run: WorkflowRun, person: Person) -> bool:
    """Would `runs_for` have this run for the person? Asks the database nothing. Raises TenantsUnknown."""
    if run.owner_id is not None and run.owner_id == person.pk:
        return True
    return sees_others(person) and acts_in(person, run.tenant)


def may_see_values(run: WorkflowRun, person: Person) -> bool:
    """May the person see what the run works with, and not only how it stands? Who has only started it may not.

    Raises TenantsUnknown.
    """
    return sees_others(person) and acts_in(person, run.tenant)


def may_operate(run: WorkflowRun, person: Person | None) -> bool:
    """Has the person the right to operate runs, in this run's tenant? None: trusted code. Raises TenantsUnknown."""
    return person is None or (person.has_perm(OPERATE) and acts_in(person, run.tenant))


def of_tenants(rows: QuerySet[Row], person: Person, path: str) -> QuerySet[Row]:
    """Only the rows of tenants that the person acts in; `path` leads to the tenant's name. Raises TenantsUnknown."""
    tenants = tenants_of(person)
    return rows if tenants is None else rows.filter(**{f"{path}__in": sorted(tenants)})


def run_for(run_id: UUID | str, person: Person | None) -> WorkflowRun:
    """One run that the person may see. Raises NotFoundError, also when it exists and is somebody else's (S2.25)."""
    wanted = read_id(run_id)
    if wanted is None:
        raise NotFoundError(f"{str(run_id)[:60]!r} is not a run's id")
    run = runs_for(person).filter(pk=wanted).first()
    if run is None:
        raise NotFoundError(f"there is no run {wanted}, or none that you may see")
    return run


def runs_of(subject: Model, person: Person | None = None) -> QuerySet[WorkflowRun]:
    """The runs about an object that the person may see, newest first. None: trusted code. Raises TenantsUnknown."""
    from django.contrib.contenttypes.models import ContentType

    kind = ContentType.objects.get_for_model(subject)
    return runs_for(person).filter(subject_type=kind, subject_id=str(subject.pk))


def may_answer(request: ApprovalRequest, person: Person) -> bool:
    """Has the person the right, in this tenant, and is not excluded as the requester? Superusers too (R27)."""
    return not refusal(request, person)


def refusal(request: ApprovalRequest, person: Person | Standing) -> str:
    """Say why the person may not answer; '' when nothing about the person is in the way.

    person   for a list of requests a `Standing`: it asks once for all of them
    """
    standing = person if isinstance(person, Standing) else shown_to(person)
    return standing.refusal(request)


def requests_for(person: Person, *, now: datetime | None = None) -> QuerySet[ApprovalRequest]:
    """The requests a person may see: the own ones; of the person's tenants those that are asked of the person or of
    somebody the person acts for, and those answered; with the right to view or operate all. Closed ones too: who comes
    second must be told who decided (R22). Raises TenantsUnknown.
    """
    requests = ApprovalRequest.objects.using(database()).select_related("run")
    if person.pk is None:
        return requests.none()
    own, tenants = Q(requester_id=person.pk), tenants_of(person)
    within = Q() if tenants is None else Q(tenant__in=sorted(tenants))
    if person.has_perm(OPERATE) or person.has_perm(VIEW_REQUESTS):
        return requests if tenants is None else requests.filter(within | own)
    answered = ApprovalDecision.objects.using(database()).filter(actor_id=person.pk).values("request_id")
    theirs = asked_of(shown_to(person, now)) | Q(pk__in=answered)
    return requests.filter(own | (within & theirs))


def waiting_for(person: Person, *, now: datetime) -> QuerySet[ApprovalRequest]:
    """The open requests that the person may answer at this time, and that were not answered by or for the person."""
    requests = ApprovalRequest.objects.using(database()).select_related("run")
    if person.pk is None:
        return requests.none()
    standing = shown_to(person, now)
    open_ones = of_tenants(requests, person, "tenant").filter(state=ApprovalState.OPEN, expires_at__gt=now)
    open_ones = open_ones.filter(asked_of(standing, is_open=True))
    excluded = Q(exclude_requester=True) & _kept_out(standing)
    return open_ones.exclude(excluded).exclude(pk__in=_answered_by(person.pk))


def _answered_by(person_id: Any) -> QuerySet[Any, Any]:
    answers = ApprovalDecision.objects.using(database()).filter(voided_at__isnull=True)
    return answers.filter(Q(actor_id=person_id) | Q(for_person_id=person_id)).values("request_id")


def asked_of(standing: Standing, *, is_open: bool = False) -> Q:
    """The requests that are asked of a person, by an own right or by one that was lent.

    is_open   without those that are answered for the giver already, in words or by silence of who may not
    """
    standing.read_all()
    asked = _asked_permissions()
    found = _asked_directly(standing, asked)
    for giver in standing.givers:
        out = _kept_out(giver) | _chosen_by(standing.appointers.get(giver.person.pk, frozenset()))
        lent = _asked_directly(giver, asked) & ~(Q(exclude_requester=True) & out)
        if giver.tenants is not None:
            lent &= Q(tenant__in=sorted(giver.tenants))
        found |= lent & ~Q(pk__in=_answered_by(giver.person.pk)) if is_open else lent
    return found


def _kept_out(standing: Standing) -> Q:
    """The requests that the person may not decide whatever the rights, where who asked may not: `Standing.may_not`."""
    made = _asked_by(standing) | _edited(standing.person.pk)
    for giver in standing.givers:
        made |= Q(exclude_delegate=True) & _asked_by(giver)
    return made


def _chosen_by(names: frozenset[str]) -> Q:
    """The requests in which the one of this name, who alone has lent a right in its giver's place, had a hand."""
    if len(names) != 1:  # of several one may have had none; who really may is asked again when somebody answers
        return Q(pk__in=[])
    (name,) = names
    field = f"editors__{get_user_model().USERNAME_FIELD}"
    edited = ApprovalRequest.objects.using(database()).filter(**{field: name}, state=ApprovalState.OPEN)
    return Q(requester_name=name) | Q(pk__in=edited.order_by().values("pk"))


def _asked_by(standing: Standing) -> Q:
    """See `Standing.asked`."""
    named = Q(requester__isnull=True, requester_name=standing.username[:150]) & ~Q(requester_name="")
    return Q(requester_id=standing.person.pk) | named


def _edited(person_id: Any) -> Q:
    """The requests about what the person has changed by hand."""
    rows = ApprovalRequest.objects.using(database()).filter(editors=person_id, state=ApprovalState.OPEN)
    return Q(pk__in=rows.order_by().values("pk"))


def _asked_directly(standing: Standing, asked: Collection[str]) -> Q:
    if not standing.is_active:
        return Q(pk__in=[])
    held = sorted(name for name in asked if standing.person.has_perm(name))
    named = Addressee.objects.using(database()).filter(
        Q(kind=PERSON, name=standing.username) | Q(kind=GROUP, name__in=sorted(standing.groups))
    )
    return Q(permission__in=held) | Q(pk__in=named.values("request_id"))


def _asked_permissions() -> set[str]:
    """The permissions that requests ask for: those declared, and those of open requests.

    Open requests may be of a release that this process does not have; closed ones are too many to look through.
    """
    specs = [step.approval for one in registry.definitions() for step in one.steps.values() if step.approval]
    declared = {by.permission for spec in specs for by in spec.everybody()}
    open_ones = ApprovalRequest.objects.using(database()).filter(state=ApprovalState.OPEN)
    asked = open_ones.order_by().values_list("permission", flat=True).distinct()
    return {*declared, *asked} - {""}


def open_steps(run: WorkflowRun) -> list[StepRun]:
    """The steps of a run that have not ended, in the order in which they came."""
    states = [str(state) for state in STEP_OPEN]
    return list(StepRun.objects.using(database()).filter(run=run, state__in=states).order_by("id"))
