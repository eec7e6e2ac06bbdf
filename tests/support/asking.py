"""A small workflow that asks about an amount, with whatever rules a test gives it, and people of all kinds."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import Group, Permission, User
from pydantic import BaseModel

from durableflows import (
    EffectCall,
    Facts,
    Money,
    Run,
    Workflow,
    WorkflowState,
    api,
    approval,
    effect,
    integrity,
    journal,
    step,
)
from durableflows.core import registry
from durableflows.core import state as states
from durableflows.models import ApprovalRequest, WorkflowRun
from durableflows.progress import CHECKPOINT_FIELDS
from durableflows.testing import World, open_request

APPROVE, DIRECT = "auth.change_group", "auth.delete_group"
"""Permissions that Django itself has: what a manager and a director would be given."""
USD_500, USD_5000 = Money(50_000, "USD"), Money(500_000, "USD")


class GrantState(WorkflowState):
    """What a grant remembers."""

    amount: Money
    to: str = "Ada"


class Lower(BaseModel):
    """What an approver may change."""

    amount: Money


class Paid(BaseModel, frozen=True):
    """A receipt."""

    id: str


PAID: list[Money] = []
"""What the bank was told to pay, by this process."""


@effect(name="grant.pay", provider="bank", receipt=Paid, key_window=timedelta(hours=24))
def pay_out(call: EffectCall, *, amount: Money) -> Paid:
    PAID.append(amount)
    return Paid(id="1")


def facts(run: Run[GrantState]) -> Facts:
    return Facts(binding={"amount": run.state.amount, "to": run.state.to})


def grant(**rules: Any) -> type[Workflow[GrantState]]:
    """Declare the workflow: sign_off -> give, or refuse; `later` is where a request may fall back to."""
    PAID.clear()
    falls_back = "Fallback" in repr(rules.get("on_expiry"))
    asking = {"title": "Grant {amount}", "shows": facts, "approved": "give", "rejected": "refuse", **rules}

    class Grant(Workflow[GrantState]):
        name, deadline = "grant", timedelta(days=60)

        @step(start=True, to="sign_off")
        def begin(self, run: Run[GrantState]) -> None: ...

        sign_off = approval(**asking)

        @step(end=True, effects=(pay_out,))
        def give(self, run: Run[GrantState]) -> None:
            edits = run.decision(self.sign_off).edits
            run.effect(pay_out, amount=edits.amount if isinstance(edits, Lower) else run.state.amount)

        @step(end=True)
        def refuse(self, run: Run[GrantState]) -> None: ...

        if falls_back:

            @step(end=True)
            def later(self, run: Run[GrantState]) -> None: ...

    return Grant


def asked(world: World, amount: Money = USD_500, *, by: User | None = None) -> ApprovalRequest:
    """Start a run and drive it to its question."""
    return open_request(started(world, amount, by=by).pk)


def started(world: World, amount: Money = USD_500, *, by: User | None = None) -> WorkflowRun:
    """Start a run and drive it as far as it goes by itself."""
    run = api.start("grant", {"amount": amount}, by=by)
    world.run_until_idle()
    return run


def person(name: str, *permissions: str, groups: tuple[str, ...] = (), **fields: Any) -> User:
    """Make somebody with these permissions and groups; a group that is not there is made."""
    user = User.objects.create_user(name, **fields)
    for permission in permissions:
        app, _, codename = permission.partition(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    for group in groups:
        user.groups.add(Group.objects.get_or_create(name=group)[0])
    return User.objects.get(pk=user.pk)


def change_data(run_id: UUID, **fields: Any) -> None:
    """Change a run's state as another branch would: a new checkpoint under the engine's own seal."""
    run = WorkflowRun.objects.get(pk=run_id)
    new = states.load(registry.get(run.workflow, run.version).state_type, run.data).model_copy(update=fields)
    integrity.seal(run, states.dump(new), run.checkpoint_sequence + 1)
    journal.record(run, "run.note", at=run.changed_at, data={"text": "another branch"})
    run.store(*CHECKPOINT_FIELDS, *journal.FIELDS)


def again(user: User) -> User:
    """The same person as a request would load it: rights that were looked at before are forgotten."""
    return User.objects.get(pk=user.pk)


def answer(request: ApprovalRequest, by: User, verdict: str = "approve", **given: Any) -> ApprovalRequest:
    """Answer what the request asks now."""
    request.refresh_from_db()
    return api.answer(request.pk, verdict, by=again(by), facts_digest=request.facts_digest, **given)


class Closed:
    """A log-in backend that knows rights and lists nobody."""

    def authenticate(self, request: Any, **given: Any) -> None:
        """Nobody logs in here."""

    def has_perm(self, user: Any, permission: str, obj: Any = None) -> bool:
        """Nobody has a right from here."""
        return False
