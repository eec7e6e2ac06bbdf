"""Rows are evidence that nobody edits, and a run's page shows all that happened (R25, R39)."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import JSONField, Value
from django.urls import reverse
from django.utils import timezone

from durableflows import api
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.runner import run_step
from tests.support.pages import HOSTILE, Ask, Browse, People, address, is_inert, rows, text

pytestmark = pytest.mark.django_db


def test_rows_cannot_be_changed_by_hand(asked: ApprovalRequest, person: People, browse: Browse):
    client = browse(person("root", is_superuser=True))
    models = ["workflowrun", "steprun", "stepattempt", "approvalrequest", "runevent"]
    models += [
        "sideeffect",
        "effectsend",
        "approvaldecision",
        "providerevent",
        "signal",
        "artifact",
        "worker",
        "breaker",
    ]
    keys = {"approvalrequest": asked.pk, "workflowrun": asked.run_id, "steprun": asked.step_id}
    event = RunEvent.objects.filter(run=asked.run_id).first()
    assert event is not None
    keys["runevent"] = event.pk
    before = rows()

    for model in models:
        base = f"/admin/durableflows/{model}/"
        assert client.get(base).status_code == 200, model
        assert client.post(f"{base}add/", {"state": "APPROVED"}).status_code == 403, model
        action = {"action": "delete_selected", "_selected_action": str(keys.get(model, "")), "post": "yes"}
        client.post(base, action)
        client.post(base, {"form-TOTAL_FORMS": 1, "form-INITIAL_FORMS": 1, "form-0-state": "APPROVED", "_save": "Save"})
        if model in keys:
            page = f"{base}{keys[model]}/"
            for data in ({"state": "APPROVED"}, {"state": "APPROVED", "_saveasnew": "1"}):
                assert client.post(f"{page}change/", data).status_code == 403, model
            assert client.post(f"{page}delete/", {"post": "yes"}).status_code == 403, model
            assert client.get(f"{page}change/").status_code in (200, 302), model

    assert rows() == before


@pytest.mark.parametrize("put", [[1, 2], "text", 5, None])
def test_a_run_whose_state_somebody_replaced_is_shown(
    asked: ApprovalRequest, person: People, browse: Browse, put: object
):
    """Who is to cure it must see it (P13)."""
    WorkflowRun.objects.filter(pk=asked.run_id).update(data=Value(put, JSONField()), parked_reason="integrity")
    waits = {"state": "WAITING", "waits_on": "signal", "wake_at": timezone.now()}
    StepRun.objects.filter(pk=asked.step_id).update(input=Value(put, JSONField()), **waits)

    client = browse(person("root", is_superuser=True))

    assert client.get(f"/admin/durableflows/workflowrun/{asked.run_id}/change/").status_code == 200
    assert client.get(f"/admin/durableflows/steprun/{asked.step_id}/change/").status_code == 200


def test_leases_are_shown_to_nobody(asked: ApprovalRequest, person: People, browse: Browse):
    client = browse(person("root", is_superuser=True))

    assert "lease token" not in text(client.get(f"/admin/durableflows/steprun/{asked.step_id}/change/")).lower()


def test_a_run_is_shown_with_all_that_happened(
    asked: ApprovalRequest, manager: User, person: People, browse: Browse, django_assert_max_num_queries: Any
):
    """B.5."""
    api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest, comment="go on")
    client = browse(person("operator", "durableflows.operate_run"))

    with django_assert_max_num_queries(14):
        response = client.get(reverse("admin:durableflows_workflowrun_change", args=[asked.run_id]))

    page = text(response)
    for words in ("bonus version 1", "asker", "prepare", "Bonus for Ada", "go on", "approval.answered", address(asked)):
        assert words in page
    assert "default-src 'self'" in response["Content-Security-Policy"]


def test_what_is_safe_and_has_no_page_of_its_own_is_shown_as_a_command(
    asked: ApprovalRequest, person: People, browse: Browse
):
    operator = browse(person("operator", "durableflows.operate_run"))

    page = text(operator.get(reverse("admin:durableflows_workflowrun_change", args=[asked.run_id])))

    assert f"manage.py durableflows cancel {asked.run_id} --reason" in page
    assert "manage.py durableflows answer" not in page


def test_a_run_shows_its_effects_with_sends_and_receipts(ask: Ask, manager: User, person: People, browse: Browse):
    asked = ask(HOSTILE)
    api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest)
    assert run_step(asked.run_id, StepRun.objects.get(run=asked.run_id, name="pay").pk)
    client = browse(person("root", is_superuser=True))

    effect = SideEffect.objects.get()
    page = text(client.get(reverse("admin:durableflows_workflowrun_change", args=[asked.run_id])))
    row = text(client.get(reverse("admin:durableflows_sideeffect_change", args=[effect.pk])))

    assert effect.state == "CONFIRMED"
    for words in ("bonus.give", "at bank", "b_1", effect.key, "send 1", "done"):
        assert words in page
    assert is_inert(page)
    assert is_inert(row)
    assert "key-1234567890" not in page + row


def test_a_long_history_is_paged(asked: ApprovalRequest, person: People, browse: Browse, monkeypatch: Any):
    monkeypatch.setattr("durableflows.admin.runs.EVENTS_SHOWN", 2)
    client = browse(person("operator", "durableflows.operate_run"))
    run_page = reverse("admin:durableflows_workflowrun_change", args=[asked.run_id])

    first = client.get(run_page).context
    second = client.get(run_page, {"before": first["older"]}).context

    assert [event.sequence for event, _ in second["events"]] == [first["older"] - 1, first["older"] - 2]
    assert client.get(run_page, {"before": "x' OR 1"}).status_code == 200


def test_runs_are_listed_without_counting_them_all(
    ask: Ask, person: People, browse: Browse, django_assert_max_num_queries: Any
):
    for name in ("Ada", "Bo", "Cy"):
        ask(name)
    client = browse(person("operator", "durableflows.operate_run"))

    with django_assert_max_num_queries(15) as queries:
        page = text(client.get("/admin/durableflows/workflowrun/", {"state": "WAITING_HUMAN", "workflow": "bonus"}))

    assert page.count("waiting for a decision") >= 3
    counts = [query["sql"] for query in queries.captured_queries if "COUNT(" in query["sql"]]
    assert counts
    assert all("LIMIT 10000" in sql for sql in counts)


def test_an_address_that_asks_for_another_order_gets_the_one_that_an_index_gives(
    ask: Ask, person: People, browse: Browse
):
    """R39: ordering by any other column would sort every row."""
    runs = [ask(name).run_id for name in ("Ada", "Bo")]
    client = browse(person("operator", "durableflows.operate_run"))

    for order in ("1", "-6", "x"):
        page = client.get("/admin/durableflows/workflowrun/", {"o": order})
        assert [run.pk for run in page.context["cl"].result_list] == runs[::-1]


def test_runs_are_found_by_id_key_subject_and_who_started_them(
    ask: Ask, asker: User, manager: User, person: People, browse: Browse
):
    WorkflowRun.objects.filter(pk=ask("Ada").run_id).update(business_key="bonus-1")
    run = ask("Bo", by=manager).run
    client = browse(person("operator", "durableflows.operate_run"))

    def found(words: str) -> list[Any]:
        page = client.get("/admin/durableflows/workflowrun/", {"q": words})
        return [one.business_key or one.pk for one in page.context["cl"].result_list]

    assert found(str(run.pk)) == found("manager") == [run.pk]
    assert found("bonus-") == found("asker") == ["bonus-1"]
    assert found("nothing") == []


def test_a_run_of_somebody_else_is_not_there(asked: ApprovalRequest, person: People, browse: Browse, asker: User):
    page = reverse("admin:durableflows_workflowrun_change", args=[asked.run_id])

    own = browse(asker).get(page)
    assert own.status_code == 200
    assert [value for _, value in own.context["facts"]] == ["hidden", "hidden"], "no more than in the console"
    assert "Ada" not in text(own).replace("Bonus for Ada", "")
    assert browse(person("nobody")).get(page).status_code in (302, 403)
    assert browse(person("nobody2")).get("/admin/durableflows/workflowrun/").status_code == 403
