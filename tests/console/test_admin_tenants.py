"""Django's admin shows and takes what is of the person's tenants, at each of its doors."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.urls import reverse

from durableflows import UnknownOutcome, api
from durableflows.core import registry
from durableflows.models import (
    ApprovalDecision,
    ApprovalRequest,
    EffectSend,
    RunEvent,
    SideEffect,
    StepAttempt,
    StepRun,
)
from durableflows.testing import virtual
from tests.support.flows import Provider, act_then_raise, pay_workflow
from tests.support.pages import LIST, Browse, People, address, answer, rows, text

pytestmark = pytest.mark.django_db

RUNS = "/admin/durableflows/workflowrun/"
RIGHTS = ("durableflows.operate_run", "durableflows.answer_approval")
EVIDENCE = (StepRun, StepAttempt, SideEffect, EffectSend, ApprovalDecision, RunEvent)


@pytest.fixture(autouse=True)
def tenants() -> Iterator[None]:
    with override_settings(DURABLEFLOWS={"TENANTS_OF": "tests.support.tenants.of"}):
        yield


@pytest.fixture
def asked() -> Iterator[ApprovalRequest]:
    """A question in tenant acme."""
    provider = Provider(faults=[act_then_raise(UnknownOutcome("?"))])
    with registry.isolated(), virtual() as world:
        api.start(pay_workflow(provider), {"amount": 5, "ask": True}, tenant="acme", key="acme's")
        world.run_until_idle()
        yield ApprovalRequest.objects.get()


@pytest.fixture
def ann(person: People) -> User:
    return person("acme-ann", *RIGHTS)


@pytest.fixture
def bob(person: People) -> User:
    return person("other-bob", *RIGHTS)


def run_page(asked: ApprovalRequest) -> str:
    return reverse("admin:durableflows_workflowrun_change", args=[asked.run_id])


def test_lists_and_pages_show_what_is_of_the_persons_tenants(
    asked: ApprovalRequest, ann: User, bob: User, browse: Browse
):
    for name, shown in ((ann, True), (bob, False)):
        client = browse(name)
        assert ("acme&#x27;s" in text(client.get(RUNS))) is shown
        assert (asked.title in text(client.get(LIST))) is shown
        assert (asked.title in text(client.get(LIST, {"standing": "mine"}))) is shown
        assert ("acme&#x27;s" in text(client.get(RUNS, {"q": str(asked.run_id)}))) is shown
        assert client.get(run_page(asked)).status_code == (200 if shown else 302)
        assert client.get(address(asked)).status_code == (200 if shown else 404)


def test_an_answer_from_another_tenant_is_not_taken(asked: ApprovalRequest, ann: User, bob: User, browse: Browse):
    before = rows()
    assert answer(browse(bob), asked).status_code == 404
    assert rows() == before

    assert answer(browse(ann), asked).status_code == 302
    assert ApprovalRequest.objects.get().state == "APPROVED"


def test_the_requester_sees_the_own_question_and_no_button_in_a_tenant_that_was_left(
    asked: ApprovalRequest, bob: User, browse: Browse
):
    ApprovalRequest.objects.update(requester=bob, exclude_requester=False)
    client = browse(bob)

    page = text(client.get(address(asked)))

    assert "another tenant" in page
    assert 'name="verdict"' not in page
    assert answer(client, asked).status_code == 403
    assert not ApprovalDecision.objects.exists()


def test_the_evidence_is_of_the_persons_tenants(asked: ApprovalRequest, ann: User, bob: User, browse: Browse):
    api.answer(asked.pk, "approve", by=ann, facts_digest=asked.facts_digest)
    with virtual() as world:
        world.run_until_idle()

    for model in EVIDENCE:
        row = model.objects.first()
        assert row is not None, model
        name = f"durableflows_{model._meta.model_name}"
        page, listed = reverse(f"admin:{name}_change", args=[row.pk]), reverse(f"admin:{name}_changelist")
        assert (browse(ann).get(page).status_code, browse(bob).get(page).status_code) == (200, 302), model
        assert str(row.pk) in text(browse(ann).get(listed))
        assert str(row.pk) not in text(browse(bob).get(listed))


def test_every_table_of_the_admin_is_bound_to_tenants_or_holds_no_run():
    from django.contrib import admin

    from durableflows.admin.readonly import ReadOnly

    free = {
        model.__name__
        for model, shown in admin.site._registry.items()
        if isinstance(shown, ReadOnly) and not shown.tenant
    }

    assert free == {"Worker", "Breaker", "BreakerChange"}


@pytest.mark.parametrize("broken", ["lost", "text", "missing"])
def test_what_is_no_answer_shuts_the_doors_and_not_the_admin(
    broken: str, asked: ApprovalRequest, ann: User, browse: Browse, caplog: pytest.LogCaptureFixture
):
    client, before = browse(ann), rows()
    doors: list[Any] = [RUNS, LIST, run_page(asked), address(asked), "/admin/durableflows/runevent/"]
    with override_settings(DURABLEFLOWS={"TENANTS_OF": f"tests.support.tenants.{broken}"}):
        assert [client.get(door).status_code for door in doors] == [403] * len(doors)
        assert answer(client, asked).status_code == 403
        assert client.get("/admin/").status_code == 200

    assert rows() == before
    assert f"tests.support.tenants.{broken} did not say" in caplog.text


def test_who_has_no_right_is_not_shown_the_way_in(asked: ApprovalRequest, person: People, browse: Browse):
    with override_settings(DURABLEFLOWS={"TENANTS_OF": "tests.support.tenants.lost"}):
        client: Client = browse(person("acme-eve"))
        assert client.get("/admin/").status_code == 200
        assert client.get(RUNS).status_code == client.get(LIST).status_code == 403
