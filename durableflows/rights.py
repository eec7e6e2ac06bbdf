"""By which right a person may answer a request: an own one, or that of somebody who has delegated it to the person.

Runs code of the project (log-in backends, TENANTS_OF): never called under a lock or inside a transaction of the engine
(P11). What it asks it asks once, however many requests it is asked about.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import IntegrityError
from django.db.models import Expression, QuerySet

from durableflows import clock, delegations
from durableflows.core.approvers import Approvers
from durableflows.core.states import ApprovalState
from durableflows.errors import NotAllowed
from durableflows.models import ApprovalRequest, Delegation, RunEvent, WorkflowRun
from durableflows.models.together import Few, read_together
from durableflows.tenants import tenants_of
from durableflows.transactions import database

_KEPT = "_durableflows_standing"
ASKED, EDITED, ACTS = "asked for it", "changed it by hand", "acts for who asked for it"
"""Why somebody else decides, as histories say it of who decided all the same, where the approval allows that."""
_TO_WHO_MADE = {ASKED: "you asked for this yourself", EDITED: "you have changed by hand what is asked here"}


@dataclass(frozen=True, slots=True)
class Right:
    """What lets somebody answer: "permission:…", "group:…" or "person:…"; `giver`: whose it is, where it was lent."""

    name: str
    giver: Any = None


class Standing:
    """What a person may answer at a moment. Groups, tenants and delegations are read when they are first needed.

    What was lent is not lent on: whoever acts for somebody acts on that person's own rights.
    """

    def __init__(self, person: Any, now: datetime | None = None) -> None:
        self.person = person
        self._now = now
        self.editors: frozenset[str] | None = None
        """By name, of the one request that this is about; None where it is about many."""

    def read_all(self) -> None:
        """Read at once what is read one by one else: the groups, and what was lent to the person and to the givers.

        One query, and one more where somebody has lent something
        """
        if not self.is_active or "groups" in vars(self):
            return
        groups = getattr(self.person, "groups", None)
        own = [] if groups is None else [Few(groups.all(), (groups.model._meta.pk.attname, "name"))]
        mine, theirs, *named = read_together(database(), *delegations.reaching(self.person, self._moment), *own)
        people = delegations.with_groups({row.giver_id for row in (*mine, *theirs)}) if mine else {}
        self.groups = frozenset(group.name for group in chain(*named))
        self.givers = self._lent_by(mine, people)
        self.appointers = delegations.appointers(mine)
        for giver in self.givers:
            giver.groups = people[giver.person.pk][1]
            giver.givers = self._lent_by((row for row in theirs if row.taker_id == giver.person.pk), people)

    def _lent_by(
        self, rows: Iterable[Delegation], people: Mapping[Any, tuple[Any, frozenset[str]]]
    ) -> tuple["Standing", ...]:
        keys = {row.giver_id for row in rows}
        return tuple(Standing(one, self._now) for key, (one, _) in people.items() if key in keys)

    def about(self, request: ApprovalRequest, editors: Collection[Any]) -> "Standing":
        """The same for one request alone, whose editors are known: nobody asks for them again."""
        one = self.knowing(request, editors)
        one.givers = tuple(giver.knowing(request, editors) for giver in self.givers)
        return one

    def knowing(self, request: ApprovalRequest, editors: Collection[Any]) -> "Standing":
        """The same without those who have lent the person something, whom `about` tells as well."""
        is_editor = request.state == ApprovalState.OPEN and any(one.pk == self.person.pk for one in editors)
        known = copy(self)
        known.edited = frozenset({request.pk} if is_editor else ())
        known.editors = frozenset(str(one.get_username()) for one in editors)
        return known

    @property
    def _moment(self) -> datetime | Expression:
        return self._now or clock.as_expression()

    @property
    def is_active(self) -> bool:
        """Is this somebody who is logged in and active?"""
        return getattr(self.person, "pk", None) is not None and bool(getattr(self.person, "is_active", False))

    @property
    def username(self) -> str:
        """What the person is called in `people=`."""
        return str(self.person.get_username())

    @cached_property
    def groups(self) -> frozenset[str]:
        """The groups that the person is in; none where the project's user has no groups."""
        groups = getattr(self.person, "groups", None)
        return frozenset() if groups is None else frozenset(groups.values_list("name", flat=True))

    @cached_property
    def tenants(self) -> frozenset[str] | None:
        """In which tenants; None for all. Raises TenantsUnknown."""
        return tenants_of(self.person)

    @cached_property
    def givers(self) -> tuple["Standing", ...]:
        """Those who have lent the person their rights, now."""
        if not self.is_active:
            return ()
        return tuple(Standing(giver, self._now) for giver in delegations.givers_of(self.person, self._moment))

    @cached_property
    def appointers(self) -> Mapping[Any, frozenset[str]]:
        """By whose word alone the person acts for somebody, where it is not the giver's own: names by giver's key."""
        return delegations.appointers_of(self.person, self._moment) if self.givers else {}

    @cached_property
    def edited(self) -> frozenset[UUID]:
        """The open requests whose run the person has changed by hand."""
        rows = ApprovalRequest.objects.using(database()).filter(editors=self.person.pk, state=ApprovalState.OPEN)
        return frozenset(rows.values_list("pk", flat=True))

    def acts_in(self, tenant: str) -> bool:
        """Does the person act in this tenant? Raises TenantsUnknown."""
        return self.tenants is None or tenant in self.tenants

    def own_right(self, by: Approvers, tenant: str) -> str:
        """By which own right the person may answer what is asked of these people; '' for none."""
        if not self.acts_in(tenant):  # who is not active acts nowhere
            return ""
        return by.right_of(has=self.person.has_perm, groups=self.groups if by.groups else (), username=self.username)

    def rights(self, request: ApprovalRequest, by: Approvers) -> list[Right]:
        """By which rights the person may answer a request that is asked of these people, the own one first.

        Nothing is lent for what the giver may not decide: what the giver, or whom the giver acts for, has asked for, or
        what the giver has changed. Nor by who asked for it, or has changed it, in the giver's place.
        """
        own = self.own_right(by, request.tenant)
        found = [Right(own)] if own else []
        for giver in self.givers:
            if giver.may_not(request) or self._is_chosen(giver, request):
                continue
            lent = giver.own_right(by, request.tenant)
            found += [Right(lent, giver.person)] if lent else []
        return found

    def _is_chosen(self, giver: "Standing", request: ApprovalRequest) -> bool:
        """Does the person act for the giver by the word of those alone who had a hand in what is asked?"""
        names = self.appointers.get(giver.person.pk, frozenset()) if request.exclude_requester else frozenset()
        others = names - {request.requester_name}
        if not names or not others:
            return bool(names)
        return others <= (editor_names(request) if self.editors is None else self.editors)

    def made(self, request: ApprovalRequest) -> str:
        """Say how the person had a hand in what is asked, so that somebody else must decide; '' for not at all."""
        return _TO_WHO_MADE.get(self.hand_in(request), "") if request.exclude_requester else ""

    def hand_in(self, request: ApprovalRequest) -> str:
        """Say how the person had a hand in what is asked, be it in the way or not: ASKED, EDITED; '' for not at all."""
        if self.asked(request):
            return ASKED
        return EDITED if request.pk in self.edited else ""

    def asked(self, request: ApprovalRequest) -> bool:
        """Is this who asked? An account that was deleted and made anew under its name is the same person."""
        if request.requester_id is not None:
            return bool(request.requester_id == self.person.pk)
        return bool(request.requester_name) and request.requester_name == self.username[:150]

    def acts_for_requester(self, request: ApprovalRequest) -> bool:
        """Has whoever asked lent the person rights now?"""
        return any(giver.asked(request) for giver in self.givers)

    def may_not(self, request: ApprovalRequest) -> str:
        """Say what about the person is in the way, whatever rights there are; '' for nothing."""
        made = self.made(request)
        if made:
            return f"{made}: somebody else must decide"
        if request.exclude_requester and request.exclude_delegate and self.acts_for_requester(request):
            who = request.requester_name
            return f"you act for {who}, who asked for this: somebody else must decide, or you end that first"
        return "" if self.acts_in(request.tenant) else f"{self.person} may not answer this: it is of another tenant"

    def refusal(self, request: ApprovalRequest) -> str:
        """Say why the person may not answer; '' when nothing about the person is in the way. Superusers too (R27)."""
        by = request.asked_of
        if by is None:
            return "the rules ask nobody about this"
        in_the_way = self.may_not(request)
        if in_the_way or self.rights(request, by):
            return in_the_way
        return f"{self.person} may not answer this: {needed(by)}"


def as_stored(person: Any) -> Any:
    """The account as the database has it now; None, trusted code, and who is not logged in stay as they are.

    Django keeps what it has read of a person's rights with the object, which a caller may have kept for hours.
    Raises NotAllowed where there is no such active account any more.
    """
    if getattr(person, "pk", None) is None:
        return person
    row = _row_of(person)
    if row is None:
        raise NotAllowed(_gone_words(person))
    return row


def gone(person: Any) -> str:
    """Say that there is no such active account any more, as the database has it now; '' when there is. It may have been
    read long before.
    """
    return "" if _row_of(person) is not None else _gone_words(person)


def _row_of(person: Any) -> Any | None:
    row = get_user_model()._base_manager.using(database()).filter(pk=person.pk).first()
    return row if getattr(row, "is_active", False) else None


def _gone_words(person: Any) -> str:
    return f"{person} is no active user any more"


@contextmanager
def while_there(person: Any) -> Iterator[None]:
    """Say NotAllowed where a row cannot be written because the account that it names went at the same instant."""
    try:
        yield
    except IntegrityError as error:
        reason = "" if person is None else gone(person)
        if not reason:
            raise
        raise NotAllowed(reason) from error


def shown_to(person: Any, now: datetime | None = None) -> Standing:
    """A person's standing for pages: kept with the account, as Django keeps permissions. Who decides is asked anew."""
    kept = getattr(person, _KEPT, None)
    if isinstance(kept, Standing):
        return kept
    standing = Standing(person, now)
    setattr(person, _KEPT, standing)
    return standing


def kept_out(request: ApprovalRequest, now: datetime) -> frozenset[Any]:
    """The keys of those who may not decide whatever their rights: who asked, who acts for that person, who edited."""
    if not request.exclude_requester:
        return frozenset()
    # One that is about to be asked keeps out whoever has edited its run before.
    editors = editors_of(request.run_id) if request._state.adding else request.editors.using(database())
    out = set(editors.values_list("pk", flat=True))
    if request.requester_id is not None:
        takers = delegations.takers_of(request.requester, now) if request.exclude_delegate else []
        out |= {request.requester_id, *(taker.pk for taker in takers)}
    return frozenset(out)


def editors_of(run_id: UUID) -> QuerySet[Any]:
    """The accounts of those who have changed by hand the state of a run, or of one that it may have its own from."""
    edits = RunEvent.objects.using(database()).filter(run__in=_family(run_id), kind="run.edited")
    edits = edits.exclude(actor_name="")
    users = get_user_model()
    names = edits.order_by().values_list("actor_name", flat=True).distinct()
    return users._base_manager.using(database()).filter(**{f"{users.USERNAME_FIELD}__in": names})


def edited_by_name(request: ApprovalRequest, person: Any) -> str:
    """Say that somebody of this person's name has changed by hand what is asked: an account that was made anew is no
    editor of the request any more. '' for not at all.
    """
    if not request.exclude_requester or not editors_of(request.run_id).filter(pk=person.pk).exists():
        return ""
    return f"{_TO_WHO_MADE[EDITED]}: somebody else must decide"


def _family(run_id: UUID) -> list[UUID]:
    """The run, those that it comes from, and all that these have started: what one is given goes on to others."""
    runs, first = WorkflowRun.objects.using(database()), run_id
    while (parent := runs.filter(pk=first).values_list("parent_id", flat=True).first()) is not None:
        first = parent
    found = below = [first]
    while below := list(runs.filter(parent__in=below).values_list("pk", flat=True)):
        found = found + below
    return found


def editor_names(request: ApprovalRequest) -> frozenset[str]:
    """The user names of those who have changed the run of an open request by hand."""
    rows = request.editors.using(database())
    return frozenset(rows.values_list(get_user_model().USERNAME_FIELD, flat=True))


def needed(by: Approvers) -> str:
    """Say which right is missing."""
    if by.groups or by.people:
        return f"it is asked of {by.words()}"
    return f"the permission {by.permission} is needed"


Lent: TypeAlias = Mapping[Any, frozenset[Any]]
"""Keys of those who have lent their rights -> keys of those who act for them."""


def lent(now: datetime) -> Lent:
    """Who acts for whom now."""
    return delegations.lent(now)
