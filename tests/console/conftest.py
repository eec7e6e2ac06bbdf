"""People with and without rights, browsers, and requests to decide."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from durableflows import Money, api, clock
from durableflows.core import registry
from durableflows.models import ApprovalRequest, StepRun
from durableflows.runner import run_step
from tests.support.bonus import OTHER_PERMISSION, PERMISSION, SHOWN, declare


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
def operator(person: Callable[..., User]) -> User:
    """Who may do every verb, and answer nothing."""
    return person("operator", "durableflows.operate_run")


@pytest.fixture
def ask(asker: User) -> Callable[..., ApprovalRequest]:
    """Start a run and drive it to its question."""

    def make(customer: str = "Ada", *, by: User = asker, quorum: int = 1) -> ApprovalRequest:
        state = {"amount": Money(60000, "USD"), "customer": customer}
        run = api.start("bonus", state, by=by, version=quorum)
        for name in ("prepare", "ask"):
            assert run_step(run.pk, StepRun.objects.get(run=run, name=name).pk)
        return ApprovalRequest.objects.get(run=run)

    return make


@pytest.fixture
def asked(ask: Callable[..., ApprovalRequest]) -> ApprovalRequest:
    return ask()


@pytest.fixture
def one_of_each(ask: Callable[..., ApprovalRequest], manager: User, person: Callable[..., User]) -> None:
    """Ada's is late, Bo's the manager's own, Cy's waits, Di's decided by the boss, Ed's handed on, Fay's decided."""
    late, _own, _waits, done = ask("Ada"), ask("Bo", by=manager), ask("Cy"), ask("Di")
    handed_on, by_me = ask("Ed", by=manager), ask("Fay")
    ApprovalRequest.objects.filter(pk=handed_on.pk).update(ladder_position=1, permission=OTHER_PERMISSION)
    api.answer(by_me.pk, "approve", by=manager, facts_digest=by_me.facts_digest)
    ApprovalRequest.objects.filter(pk=late.pk).update(expires_at=clock.now() - timedelta(seconds=1))
    api.answer(done.pk, "reject", by=person("boss", PERMISSION), facts_digest=done.facts_digest)


@pytest.fixture
def browse() -> Callable[[User], Client]:
    """A browser in which somebody is logged in."""

    def log_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return log_in
