"""An office for tests: who asks, who may answer, and a payment that waits for them, with everybody told by a keeper."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import override_settings

from durableflows import Escalate, Facts, Run, Workflow, WorkflowState, api, approval, step
from durableflows.core import registry
from durableflows.models import ApprovalRequest
from durableflows.testing import World, open_request, virtual
from tests.support import told_people
from tests.support.told_people import KEEPER

ANSWER, OPERATE = "answer_approval", "operate_run"
SETTINGS: dict[str, Any] = {"NOTIFIERS": [KEEPER], "BASE_URL": "https://desk.example.com"}


class Wish(WorkflowState):
    """What is asked for."""

    amount: int = 5
    to: str = "Ada"


def declare(*, quorum: int = 1, remind: tuple[timedelta, ...] = (), expires: timedelta = timedelta(days=3)) -> None:
    """ask -> paid, or refused; after its time it is put to operators."""

    def show(run: Run[Wish]) -> Facts:
        return Facts(binding={"amount": run.state.amount, "to": run.state.to}, context={"why": "a test"})

    class Office(Workflow[Wish]):
        """Pay somebody, when somebody agrees."""

        name, version, deadline = "office", 1, timedelta(days=30)

        ask = approval(
            start=True,
            title="Pay {amount} to {to}",
            shows=show,
            permission=f"durableflows.{ANSWER}",
            approved="paid",
            rejected="refused",
            quorum=quorum,
            expires=expires,
            remind=remind,
            on_expiry=Escalate(f"durableflows.{OPERATE}", then="deny"),
        )

        @step(end=True)
        def paid(self, run: Run[Wish]) -> None:
            run.note("paid")

        @step(end=True)
        def refused(self, run: Run[Wish]) -> None:
            run.note("refused")


def person(name: str, *rights: str, **fields: Any) -> User:
    """Somebody with a mail address, and rights of the engine by their last names."""
    user = User.objects.create_user(name, f"{name}@example.com", "x", **fields)
    app = {"content_type__app_label": "durableflows"}
    user.user_permissions.set(Permission.objects.filter(codename__in=rights, **app))
    return user


class Office:
    """Ada has asked; Bo and Cy may answer, Di operates."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ada, self.bo, self.cy = person("ada"), person("bo", ANSWER), person("cy", ANSWER)
        self.di = person("di", OPERATE)

    def ask(self, to: str = "Ada", **options: Any) -> ApprovalRequest:
        """Let Ada ask for a payment, without telling anybody yet."""
        run = api.start("office", {"amount": 5, "to": to}, by=options.pop("by", self.ada), **options)
        while self.world.messages:
            self.world.deliver(*self.world.messages.popleft())
        return open_request(run.pk)

    def asked(self, to: str = "Ada", **options: Any) -> ApprovalRequest:
        """Let Ada ask, and everybody be told."""
        request = self.ask(to, **options)
        self.world.run_until_idle()
        return request


def answer(request: ApprovalRequest, by: User, verdict: str = "approve") -> ApprovalRequest:
    """Answer a request as it is now."""
    request.refresh_from_db()
    return api.answer(request.pk, verdict, by=by, facts_digest=request.facts_digest)


@contextmanager
def office(**options: Any) -> Iterator[Office]:
    """An office with a played world; nobody has been told of anything."""
    told_people.forget()
    with registry.isolated(), override_settings(DURABLEFLOWS=SETTINGS), virtual() as world:
        declare(**options)
        yield Office(world)
    told_people.forget()
