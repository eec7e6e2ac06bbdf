"""A small workflow that asks a person, people with and without rights, and requests to decide."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from durableflows import Facts, Money, Run, Workflow, WorkflowState, api, approval, step
from durableflows.core import registry
from durableflows.models import ApprovalRequest, StepRun
from durableflows.runner import run_step

PERMISSION = "auth.change_group"
OTHER_PERMISSION = "auth.delete_group"


class BonusState(WorkflowState):
    """What a bonus run remembers."""

    amount: Money
    customer: str = "Ada"


SHOWN: dict[str, Any] = {}
"""What a test changes about the facts between showing and answering."""


def declare(quorum: int = 1) -> type[Workflow[BonusState]]:
    def facts(run: Run[BonusState]) -> Facts:
        binding = {"amount": run.state.amount, "customer": run.state.customer}
        return Facts(binding=binding | SHOWN, context={"loyal_since": "2019"})

    asked = approval(
        title="Bonus for {customer}",
        shows=facts,
        permission=PERMISSION,
        quorum=quorum,
        expires=timedelta(days=2),
        approved="pay",
        rejected="apologise",
    )

    class Bonus(Workflow[BonusState]):
        name, version = "bonus", quorum
        deadline = timedelta(days=9)

        @step(start=True, to="ask")
        def prepare(self, run: Run[BonusState]) -> None: ...

        ask = asked

        @step(end=True)
        def pay(self, run: Run[BonusState]) -> None: ...

        @step(end=True)
        def apologise(self, run: Run[BonusState]) -> None: ...

    return Bonus


@pytest.fixture(autouse=True)
def workflows() -> Iterator[None]:
    with registry.isolated():
        SHOWN.clear()
        declare()
        declare(quorum=2)
        yield


@pytest.fixture
def person(db: None) -> Callable[..., User]:
    """Make a member of staff with the named permissions."""

    def make(name: str, *permissions: str, **fields: Any) -> User:
        user = User.objects.create_user(name, password="x", is_staff=True, **fields)
        for permission in permissions:
            app, _, codename = permission.partition(".")
            user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
        return user

    return make


@pytest.fixture
def asker(person: Callable[..., User]) -> User:
    return person("asker")


@pytest.fixture
def manager(person: Callable[..., User]) -> User:
    return person("manager", PERMISSION)


@pytest.fixture
def ask(asker: User) -> Callable[..., ApprovalRequest]:
    """Start a run and drive it to its question."""

    def make(customer: str = "Ada", *, by: User = asker, quorum: int = 1) -> ApprovalRequest:
        state = {"amount": Money(60000, "USD"), "customer": customer}
        run = api.start("bonus", state, by=by, version=quorum)
        for name in ("prepare", "ask"):
            assert run_step(run.pk, step_id(run.pk, name))
        return ApprovalRequest.objects.get(run=run)

    return make


@pytest.fixture
def asked(ask: Callable[..., ApprovalRequest]) -> ApprovalRequest:
    return ask()


@pytest.fixture
def browse() -> Callable[[User], Client]:
    """A browser in which somebody is logged in."""

    def log_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return log_in


def step_id(run_id: UUID, name: str) -> UUID:
    return StepRun.objects.get(run_id=run_id, name=name).pk
