"""Permission and tenant at every door: who may operate or answer may do so in the tenants that the project names."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.core.management import CommandError, call_command
from django.test import override_settings

from durableflows import NotAllowed, NotFoundError, UnknownOutcome, api
from durableflows.checks import check_settings
from durableflows.core import registry
from durableflows.core.states import ApprovalState, EndingReason, ParkedReason, RunState
from durableflows.errors import TenantsUnknown
from durableflows.models import ApprovalRequest, SideEffect, WorkflowRun
from durableflows.selectors import may_answer, requests_for, runs_for, waiting_for
from durableflows.testing import World, virtual
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow

pytestmark = pytest.mark.django_db(transaction=True)

OF = {"TENANTS_OF": "tests.support.tenants.of"}
RIGHTS = ("operate_run", "view_workflowrun", "answer_approval", "view_approvalrequest")
BROKEN = ("lost", "text", "numbers", "nothing", "NOT_CALLABLE", "missing")


@pytest.fixture
def world() -> Iterator[World]:
    with registry.isolated(), override_settings(DURABLEFLOWS=OF), virtual() as world:
        yield world


def person(name: str, *rights: str, **fields: Any) -> User:
    user = User.objects.create_user(name, **fields)
    app = {"content_type__app_label": "durableflows"}
    user.user_permissions.set(Permission.objects.filter(codename__in=rights or RIGHTS, **app))
    return user


class Two:
    """A run of each of two tenants, that asks a person."""

    def __init__(self, world: World) -> None:
        pay_workflow(Provider())
        self.acme = api.start("pay", {"amount": 5, "ask": True}, tenant="acme", key="k")
        self.other = api.start("pay", {"amount": 6, "ask": True}, tenant="other", key="k")
        world.run_until_idle()
        self.asked = ApprovalRequest.objects.get(run=self.acme)
        self.other_asked = ApprovalRequest.objects.get(run=self.other)
        self.ann, self.bob, self.all = person("acme-ann"), person("other-bob"), person("all-cy")


@pytest.fixture
def two(world: World) -> Two:
    return Two(world)


def test_runs_and_requests_of_other_tenants_are_not_there(two: Two, world: World):
    now = world.clock.now()

    assert [run.pk for run in runs_for(two.ann)] == [two.acme.pk]
    assert [asked.pk for asked in requests_for(two.ann)] == [two.asked.pk]
    assert [asked.pk for asked in waiting_for(two.ann, now=now)] == [two.asked.pk]
    assert (may_answer(two.asked, two.ann), may_answer(two.asked, two.bob)) == (True, False)
    assert runs_for(two.all).count() == requests_for(two.all).count() == waiting_for(two.all, now=now).count() == 2
    assert runs_for(AnonymousUser()).count() == requests_for(AnonymousUser()).count() == 0


DOORS: dict[str, Callable[[Two, User], object]] = {
    "get": lambda two, by: api.get(two.acme.pk, by=by),
    "explain": lambda two, by: api.explain(two.acme.pk, by=by),
    "cancel": lambda two, by: api.cancel(two.acme.pk, by=by, reason="x"),
    "signal": lambda two, by: api.signal(two.acme.pk, "paid", {}, by=by),
    "retry": lambda two, by: api.retry(two.acme.pk, by=by, reason="x"),
    "answer": lambda two, by: api.answer(two.asked.pk, "approve", by=by, facts_digest=two.asked.facts_digest),
}


@pytest.mark.parametrize("door", DOORS)
def test_each_door_is_open_within_the_tenant_and_shut_outside(door: str, two: Two):
    WorkflowRun.objects.filter(pk=two.acme.pk).update(parked_reason=ParkedReason.OUR_CODE if door == "retry" else "")
    before = list(WorkflowRun.objects.values_list("row_version", "event_sequence"))

    with pytest.raises(NotFoundError, match="none that you may see"):
        DOORS[door](two, two.bob)
    assert list(WorkflowRun.objects.values_list("row_version", "event_sequence")) == before

    DOORS[door](two, two.ann)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_no_answer_shuts_every_door_and_says_why(broken: str, door: str, two: Two):
    with override_settings(DURABLEFLOWS={"TENANTS_OF": f"tests.support.tenants.{broken}"}):
        with pytest.raises(TenantsUnknown, match=rf"tests\.support\.tenants\.{broken}"):
            DOORS[door](two, two.ann)
        with pytest.raises(TenantsUnknown):
            api.start("pay", {"amount": 7}, by=two.ann, tenant="acme")

    assert {str(run.state) for run in WorkflowRun.objects.all()} == {RunState.WAITING_HUMAN}


def test_a_verdict_on_an_effect_is_given_within_the_tenant(world: World):
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("?"))])
    pay_workflow(provider, pay_effect(provider, key_window=None, with_lookup=False))
    api.start("pay", {"amount": 5}, tenant="acme")
    world.run_through()
    row = SideEffect.objects.get()

    def resolve(by: User) -> object:
        return api.resolve_effect(
            row.pk, "happened", by=by, reason="seen", row_version=row.row_version, receipt={"id": "a"}
        )

    with pytest.raises(NotFoundError, match="there is no effect"):
        resolve(person("other-bob"))
    with pytest.raises(NotAllowed):
        resolve(person("acme-eve", "view_workflowrun"))
    resolve(person("acme-ann"))
    assert SideEffect.objects.get().state == "CONFIRMED"


def test_who_started_a_run_keeps_it_also_in_a_tenant_that_was_left(two: Two):
    """It may be seen and cancelled as by every owner, and not be operated as by who has the right there."""
    WorkflowRun.objects.filter(pk=two.acme.pk).update(owner=two.bob, parked_reason=ParkedReason.OUR_CODE)
    ApprovalRequest.objects.filter(pk=two.asked.pk).update(requester=two.bob)

    assert set(runs_for(two.bob)) == {two.acme, two.other}
    assert set(requests_for(two.bob)) == {two.asked, two.other_asked}
    with pytest.raises(NotAllowed):
        api.retry(two.acme.pk, by=two.bob, reason="x")
    api.cancel(two.acme.pk, by=two.bob, reason="x")
    assert WorkflowRun.objects.get(pk=two.acme.pk).ending_reason == EndingReason.CANCEL


def test_who_can_see_the_own_request_does_not_answer_for_another_tenant(two: Two):
    ApprovalRequest.objects.filter(pk=two.asked.pk).update(requester=two.bob, exclude_requester=False)

    with pytest.raises(NotAllowed, match="another tenant"):
        DOORS["answer"](two, two.bob)


def test_a_vote_of_who_has_left_the_tenant_no_longer_counts(two: Two, world: World):
    """P9: rights count when the run wakes."""
    DOORS["answer"](two, two.ann)
    User.objects.filter(pk=two.ann.pk).update(username="other-ann")
    world.run_until_idle()

    run = WorkflowRun.objects.get(pk=two.acme.pk)
    assert run.state == RunState.PARKED
    assert "tenant" in run.parked_detail


def test_people_start_runs_in_their_tenants_only(world: World):
    flow, ann = pay_workflow(Provider()), person("acme-ann", "answer_approval")

    with pytest.raises(NotAllowed, match="'other'"):
        api.start(flow, {"amount": 5}, by=ann, tenant="other")
    with pytest.raises(NotAllowed):
        api.start(flow, {"amount": 5}, by=ann)
    assert api.start(flow, {"amount": 5}, by=ann, tenant="acme").tenant == "acme"
    assert api.start(flow, {"amount": 5}, tenant="other").tenant == "other"


def test_without_the_setting_people_act_where_no_tenant_is_named_and_superusers_everywhere(two: Two, world: World):
    with override_settings(DURABLEFLOWS={}):
        plain = api.start("pay", {"amount": 7, "ask": True}, by=two.bob)
        world.run_until_idle()
        root = person("root", is_superuser=True)

        assert list(runs_for(two.ann)) == [plain]
        assert [asked.run_id for asked in waiting_for(two.ann, now=world.clock.now())] == [plain.pk]
        assert runs_for(root).count() == requests_for(root).count() == 3
        assert runs_for(person("gone", is_superuser=True, is_active=False)).count() == 0
        with pytest.raises(NotFoundError):
            DOORS["cancel"](two, two.ann)


def test_commands_on_the_server_are_trusted_and_act_with_a_named_persons_rights(two: Two):
    with pytest.raises(CommandError, match="not_found"):
        call_command("durableflows", "cancel", str(two.acme.pk), "--reason", "x", "--by", "other-bob")
    call_command("durableflows", "cancel", str(two.other.pk), "--reason", "x")

    assert ApprovalRequest.objects.get(pk=two.other_asked.pk).state == ApprovalState.CLOSED
    assert ApprovalRequest.objects.get(pk=two.asked.pk).state == ApprovalState.OPEN


@pytest.mark.parametrize("path", ["", "tests.support.tenants.of"])
def test_the_system_check_takes_a_callable(path: str):
    with override_settings(DURABLEFLOWS={"TENANTS_OF": path}):
        assert check_settings(None) == []


@pytest.mark.parametrize(
    "path", ["of", "tests.nowhere.of", "tests.support.tenants.missing", "tests.support.tenants.NOT_CALLABLE"]
)
def test_the_system_check_refuses_what_cannot_be_called(path: str):
    with override_settings(DURABLEFLOWS={"TENANTS_OF": path}):
        [found] = check_settings(None)

    assert found.id == "durableflows.E004"
    assert path in found.msg


def test_an_unknown_run_and_one_of_another_tenant_are_told_apart_by_nobody(two: Two):
    texts = []
    for run_id in (uuid4(), two.other.pk):
        with pytest.raises(NotFoundError) as caught:
            api.get(run_id, by=two.ann)
        texts.append(str(caught.value).replace(str(run_id), "ID"))

    assert texts[0] == texts[1]
