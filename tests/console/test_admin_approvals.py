"""Requests are listed and decided in Django's admin, by those who may, once, never by looking (R10, R22, R24-R28)."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client
from django.urls import reverse

from durableflows import api, clock
from durableflows.core import registry
from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.runner import run_step
from tests.support.bonus import OTHER_PERMISSION, PERMISSION, SHOWN

pytestmark = pytest.mark.django_db
RUN_COLUMNS = [column.attname for column in WorkflowRun._meta.concrete_fields]
LIST = "/admin/durableflows/approvalrequest/"
Browse = Callable[[User], Client]
Ask = Callable[..., ApprovalRequest]
People = Callable[..., User]


def address(asked: ApprovalRequest) -> str:
    return reverse("admin:durableflows_approvalrequest_decide", args=[asked.pk])


def answer(client: Client, asked: ApprovalRequest, verdict: str = "approve", **fields: Any) -> Any:
    data = {"verdict": verdict, "facts_digest": asked.facts_digest, **fields}
    return client.post(address(asked), data)


def text(response: Any) -> str:
    return str(response.content.decode())


def said(response: Any) -> str:
    return " ".join(str(message) for message in get_messages(response.wsgi_request))


def rows() -> tuple[Any, ...]:
    """Everything that a decision would change."""
    return (
        list(ApprovalRequest.objects.order_by("pk").values()),
        list(ApprovalDecision.objects.order_by("pk").values()),
        list(StepRun.objects.order_by("pk").values()),
        list(WorkflowRun.objects.order_by("pk").values(*RUN_COLUMNS)),
        RunEvent.objects.count(),
    )


# The list


def test_the_list_says_in_words_what_waits(asked: ApprovalRequest, manager: User, browse: Browse):
    page = text(browse(manager).get(LIST)).replace("\N{NO-BREAK SPACE}", " ")

    for words in ("Bonus for Ada", "USD 600.00", "asker", "in 1 day, 23 hours", "waiting", address(asked)):
        assert words in page


@pytest.mark.parametrize(
    ("standing", "shown"), [("mine", ["Cy"]), ("open", ["Bo", "Cy"]), ("overdue", ["Ada"]), ("decided", ["Di"])]
)
def test_the_list_is_filtered_by_where_requests_stand(
    standing: str, shown: list[str], ask: Ask, manager: User, person: People, browse: Browse
):
    late, _own, _mine, done = ask("Ada"), ask("Bo", by=manager), ask("Cy"), ask("Di")
    ApprovalRequest.objects.filter(pk=late.pk).update(expires_at=clock.now() - timedelta(seconds=1))
    api.answer(done.pk, "reject", by=person("boss", PERMISSION), facts_digest=done.facts_digest)

    page = text(browse(manager).get(LIST, {"standing": standing}))

    assert [name for name in ("Ada", "Bo", "Cy", "Di") if f"Bonus for {name}" in page] == shown


def test_a_vote_given_is_no_longer_waiting_for_me(ask: Ask, manager: User, browse: Browse):
    asked = ask(quorum=2)
    api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest)

    assert "Bonus for Ada" not in text(browse(manager).get(LIST, {"standing": "mine"}))


@pytest.mark.parametrize("query", ["ada", "asker", "id"])
def test_requests_are_found(query: str, ask: Ask, manager: User, browse: Browse):
    asked, _other = ask("Ada"), ask("Bo")
    found = text(browse(manager).get(LIST, {"q": str(asked.pk) if query == "id" else query}))

    assert "Bonus for Ada" in found
    assert ("Bonus for Bo" in found) == (query == "asker")


def test_the_list_asks_the_database_no_more_for_many_rows(
    ask: Ask, manager: User, browse: Browse, django_assert_max_num_queries: Any
):
    for number in range(12):
        ask(f"No. {number}")
    client = browse(manager)

    with django_assert_max_num_queries(15):
        client.get(LIST)


def test_a_request_opens_on_its_decision_page(asked: ApprovalRequest, manager: User, browse: Browse):
    response = browse(manager).get(f"{LIST}{asked.pk}/change/")

    assert response.status_code == 302
    assert response["Location"] == address(asked)


# The page


def test_the_page_says_what_is_decided(asked: ApprovalRequest, manager: User, browse: Browse):
    response = browse(manager).get(address(asked))
    page = text(response)

    for words in ("Bonus for Ada", "USD 600.00", "Loyal since", "2019", "asker", PERMISSION, "Nobody yet"):
        assert words in page
    assert "the run goes on with “pay”, which calls bonus.give at bank" in page
    assert "the run goes on with “apologise”" in page
    assert asked.facts_digest in page
    assert 'value="approve"' in page
    assert "default-src 'self'" in response["Content-Security-Policy"]


def test_the_page_asks_the_database_little(
    asked: ApprovalRequest, manager: User, browse: Browse, django_assert_max_num_queries: Any
):
    client = browse(manager)

    with django_assert_max_num_queries(20):
        client.get(address(asked))


def test_the_page_works_for_a_workflow_that_this_process_does_not_know(
    asked: ApprovalRequest, manager: User, browse: Browse
):
    client = browse(manager)
    with registry.isolated():
        page = client.get(address(asked))
        refused = answer(client, asked)

    assert page.status_code == 200
    assert refused.status_code == 409
    assert "no workflow" in text(refused)
    assert ApprovalRequest.objects.get().state == "OPEN"


# Deciding


def test_a_manager_approves(asked: ApprovalRequest, manager: User, browse: Browse):
    response = answer(browse(manager), asked)

    assert response.status_code == 302
    assert response["Location"] == LIST
    assert "You approved “Bonus for Ada”" in said(response)
    decision = ApprovalDecision.objects.get()
    assert (decision.actor, decision.verdict, decision.door, decision.origin) == (
        manager,
        "approve",
        "admin",
        "127.0.0.1",
    )
    assert ApprovalRequest.objects.get().state == "APPROVED"
    assert StepRun.objects.filter(run=asked.run_id, name="pay").exists()


def test_a_manager_rejects_with_a_comment(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    answer(client, asked, "reject", comment="too much")

    assert ApprovalDecision.objects.get().comment == "too much"
    assert StepRun.objects.filter(run=asked.run_id, name="apologise").exists()
    page = text(client.get(address(asked)))
    assert "too much" in page
    assert "This is closed" in page
    assert 'name="verdict"' not in page


def test_two_must_approve_where_two_are_needed(ask: Ask, manager: User, person: People, browse: Browse):
    asked = ask(quorum=2)

    assert "1 of 2" in said(answer(browse(manager), asked))
    assert ApprovalRequest.objects.get().state == "OPEN"
    assert "You approved" in said(answer(browse(person("second", PERMISSION)), asked))
    assert ApprovalRequest.objects.get().state == "APPROVED"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"verdict": ""}, "Choose approve or reject"),
        ({"verdict": "APPROVED"}, "Choose approve or reject"),
        ({"facts_digest": ""}, "did not say which facts"),
        ({"comment": "x" * 4001}, "4000"),
        ({"comment": "a\x00b"}, "Null characters"),
    ],
)
def test_what_is_no_answer_is_refused(
    fields: dict[str, str], words: str, asked: ApprovalRequest, manager: User, browse: Browse
):
    before = rows()
    response = browse(manager).post(
        address(asked), {"verdict": "approve", "facts_digest": asked.facts_digest, **fields}
    )

    assert response.status_code == 400
    assert words in text(response)
    assert rows() == before


# Second answers


def test_a_second_person_is_told_who_decided_and_when(
    asked: ApprovalRequest, manager: User, person: People, browse: Browse
):
    answer(browse(manager), asked)
    before = rows()

    response = answer(browse(person("second", PERMISSION)), asked, "reject")

    decision = ApprovalDecision.objects.get()
    assert response.status_code == 409
    assert f"already approved by manager at {decision.at:%Y-%m-%d %H:%M}" in text(response)
    assert rows() == before


def test_the_same_answer_again_is_friendly(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    answer(client, asked)
    before = rows()

    response = answer(client, asked)

    assert response.status_code == 302
    assert "You had already approved" in said(response)
    assert rows() == before


def test_the_opposite_answer_afterwards_is_refused(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    answer(client, asked)
    before = rows()

    assert "already approved by manager" in text(answer(client, asked, "reject"))
    assert rows() == before


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_one_of_many_answers_at_once_decides(ask: Ask, person: People, browse: Browse):
    people = [person(f"manager{number}", PERMISSION) for number in range(3)]
    asked = ask()
    clients = [browse(people[0]), browse(people[0]), browse(people[1]), browse(people[2])]
    start = threading.Barrier(len(clients))

    def click(client: Client, verdict: str) -> int:
        start.wait(10)
        try:
            return int(answer(client, asked, verdict).status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(clients)) as threads:
        codes = list(threads.map(click, clients, ["approve", "approve", "approve", "reject"]))

    decision = ApprovalDecision.objects.get()
    expected = [302 if client_of == decision.actor else 409 for client_of in (people[0], *people)]
    assert codes == expected
    assert StepRun.objects.filter(run=asked.run_id, name__in=["pay", "apologise"]).count() == 1
    assert RunEvent.objects.filter(run=asked.run_id, kind="approval.answered").count() == 1


# Facts and time


def shown_in(client: Client, asked: ApprovalRequest) -> dict[str, str]:
    """What the page posts along."""
    return {"facts_digest": asked.facts_digest, "shown": client.get(address(asked)).context["shown"]}


def test_changed_facts_are_shown_side_by_side(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    posted = shown_in(client, asked)
    SHOWN["amount"] = {"amount_minor": 90000, "currency": "USD"}

    response = client.post(address(asked), {"verdict": "approve", "comment": "fine by me", **posted})

    page = text(response)
    assert response.status_code == 409
    assert "<del><bdi>USD 600.00</bdi></del>" in page
    assert "<ins><bdi>USD 900.00</bdi></ins>" in page
    assert "fine by me" in page
    assert not ApprovalDecision.objects.exists()
    assert answer(client, ApprovalRequest.objects.get()).status_code == 302


def test_a_page_older_than_a_change_that_another_met_shows_both_values(
    asked: ApprovalRequest, manager: User, person: People, browse: Browse
):
    client, other = browse(manager), browse(person("second", PERMISSION))
    posted = shown_in(client, asked)
    SHOWN["amount"] = {"amount_minor": 90000, "currency": "USD"}
    answer(other, asked)

    page = text(client.post(address(asked), {"verdict": "approve", **posted}))

    assert "<del><bdi>USD 600.00</bdi></del>" in page
    assert "<ins><bdi>USD 900.00</bdi></ins>" in page


@pytest.mark.parametrize("shown", ["", "{", "[]", '{"amount": 1}', "[" * 5000, '{"a": NaN}'])
def test_made_up_shown_facts_are_not_believed(shown: str, asked: ApprovalRequest, manager: User, browse: Browse):
    response = answer(browse(manager), asked, facts_digest="0" * 64, shown=shown)

    assert response.status_code == 409
    assert "<del>" not in text(response)
    assert not ApprovalDecision.objects.exists()


def test_facts_that_cannot_be_computed_decide_nothing(asked: ApprovalRequest, manager: User, browse: Browse):
    before, client = rows(), browse(manager)
    SHOWN["broken"] = True

    response = answer(client, asked, comment="fine by me")

    assert response.status_code == 409
    assert "cannot be computed now" in text(response)
    assert "fine by me" in text(response)
    assert rows() == before


def test_an_expired_request_is_refused(asked: ApprovalRequest, manager: User, browse: Browse):
    ApprovalRequest.objects.update(expires_at=clock.now() - timedelta(seconds=1))
    before, client = rows(), browse(manager)

    response = answer(client, asked)

    assert response.status_code == 409
    assert "expired" in text(response)
    assert rows() == before
    assert 'name="verdict"' not in text(client.get(address(asked)))


def test_a_request_of_a_cancelled_run_is_refused(asked: ApprovalRequest, manager: User, browse: Browse):
    api.cancel(asked.run_id, reason="changed his mind")

    response = answer(browse(manager), asked)

    assert response.status_code == 409
    assert "already closed" in text(response)


# Rights


def test_without_the_right_nothing_is_decided(
    asked: ApprovalRequest, person: People, browse: Browse, caplog: pytest.LogCaptureFixture
):
    viewer = browse(person("viewer", "durableflows.view_approvalrequest", "durableflows.change_approvalrequest"))
    before = rows()

    page = text(viewer.get(address(asked)))
    with caplog.at_level(logging.WARNING, logger="durableflows.admin"):
        response = answer(viewer, asked)

    assert 'name="verdict"' not in page
    assert f"the permission {PERMISSION} is needed" in page
    assert response.status_code == 403
    assert f"the permission {PERMISSION} is needed" in text(response)
    assert "viewer could not answer" in caplog.text
    assert rows() == before


def test_staff_without_any_right_sees_nothing(asked: ApprovalRequest, person: People, browse: Browse):
    client = browse(person("nobody"))
    before = rows()

    assert [client.get(LIST).status_code, client.get(address(asked)).status_code] == [403, 403]
    assert answer(client, asked).status_code == 403
    assert LIST not in text(client.get("/admin/"))
    assert rows() == before


def test_requests_of_another_right_are_not_there(asked: ApprovalRequest, person: People, browse: Browse):
    client = browse(person("other", OTHER_PERMISSION, "durableflows.answer_approval"))
    before = rows()

    assert "Bonus for Ada" not in text(client.get(LIST))
    assert answer(client, asked).status_code == 404
    assert client.get(f"{LIST}{uuid4()}/decide/").status_code == 404
    assert rows() == before


def test_anonymous_people_are_sent_to_the_log_in(asked: ApprovalRequest):
    before = rows()

    assert answer(Client(), asked)["Location"].startswith("/admin/login/")
    assert rows() == before


@pytest.mark.parametrize("change", ["right", "account", "staff"])
def test_rights_lost_between_looking_and_answering_are_lost(
    change: str, asked: ApprovalRequest, manager: User, browse: Browse
):
    client = browse(manager)
    posted = shown_in(client, asked)
    if change == "right":
        manager.user_permissions.clear()
    else:
        User.objects.filter(pk=manager.pk).update(**{"is_active" if change == "account" else "is_staff": False})
    before = rows()

    assert client.post(address(asked), {"verdict": "approve", **posted}).status_code in (302, 403)
    assert rows() == before


@pytest.mark.parametrize("is_superuser", [False, True])
def test_nobody_decides_the_own_request(is_superuser: bool, ask: Ask, person: People, browse: Browse):
    both = person("both", PERMISSION, is_superuser=is_superuser)
    asked = ask(by=both)
    before, client = rows(), browse(both)

    page = text(client.get(address(asked)))
    response = answer(client, asked)

    assert "You asked for this yourself" in page
    assert 'name="verdict"' not in page
    assert response.status_code == 403
    assert "you asked for this yourself" in text(response)
    assert rows() == before


def test_another_superuser_decides(asked: ApprovalRequest, person: People, browse: Browse):
    assert answer(browse(person("root", is_superuser=True)), asked).status_code == 302


# Looking never decides


@pytest.mark.parametrize("method", ["get", "head", "options", "put", "patch", "delete"])
def test_only_a_post_decides(method: str, asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    before = rows()
    query = f"?verdict=approve&facts_digest={asked.facts_digest}"

    for someone in (client, Client()):
        for _ in range(5):
            getattr(someone, method)(address(asked) + query)

    assert rows() == before
    assert answer(client, asked).status_code == 302


def test_a_post_needs_the_csrf_token_in_its_body(asked: ApprovalRequest, manager: User):
    client = Client(enforce_csrf_checks=True)
    client.force_login(manager)
    token = client.get(address(asked)).context["csrf_token"]
    before = rows()
    data = {"verdict": "approve", "facts_digest": asked.facts_digest}

    assert client.post(address(asked), data).status_code == 403
    assert client.post(f"{address(asked)}?csrfmiddlewaretoken={token}", data).status_code == 403
    assert rows() == before
    assert client.post(address(asked), {**data, "csrfmiddlewaretoken": str(token)}).status_code == 302


# Hostile text

HOSTILE = """</script><script>alert(1)</script>"><img src=x onerror='alert(2)'>{{ 7|add:7 }} javascript:alert(3)"""


def is_inert(page: str) -> bool:
    return not any(piece in page for piece in ("<script>alert", "<img src=x", "onerror='", "14 javascript"))


def test_hostile_text_is_inert(ask: Ask, manager: User, person: People, browse: Browse):
    asked, client = ask(HOSTILE), browse(person("root", is_superuser=True))
    SHOWN[HOSTILE] = {HOSTILE: [HOSTILE]}
    pages = [client.get(address(asked)), client.get(LIST), answer(client, asked)]
    SHOWN["customer"] = "Ada"
    pages.append(answer(client, ApprovalRequest.objects.get(), comment=HOSTILE))
    SHOWN.clear()
    SHOWN[HOSTILE] = "now"
    pages.append(answer(client, ApprovalRequest.objects.get(), comment=HOSTILE))
    fresh = ApprovalRequest.objects.get()
    done = answer(client, fresh, "reject", comment=HOSTILE)
    pages += [
        client.get(done["Location"]),
        client.get(address(asked)),
        answer(browse(manager), fresh),
        client.get(reverse("admin:durableflows_workflowrun_change", args=[asked.run_id])),
        client.get(reverse("admin:durableflows_approvaldecision_change", args=[ApprovalDecision.objects.get().pk])),
        client.get("/admin/durableflows/runevent/"),
        client.get(LIST, {"q": HOSTILE}),
    ]

    assert [page.status_code for page in pages] == [200, 200, 409, 409, 409, 200, 200, 409, 200, 200, 200, 200]
    assert [number for number, page in enumerate(pages) if not is_inert(text(page))] == []
    assert "&lt;script&gt;alert(1)" in text(pages[0])


# Evidence


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


def test_leases_are_shown_to_nobody(asked: ApprovalRequest, person: People, browse: Browse):
    client = browse(person("root", is_superuser=True))

    assert "lease token" not in text(client.get(f"/admin/durableflows/steprun/{asked.step_id}/change/")).lower()


# Runs


def test_a_run_is_shown_with_all_that_happened(
    asked: ApprovalRequest, manager: User, person: People, browse: Browse, django_assert_max_num_queries: Any
):
    api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest, comment="go on")
    client = browse(person("operator", "durableflows.operate_run"))

    with django_assert_max_num_queries(25):
        response = client.get(reverse("admin:durableflows_workflowrun_change", args=[asked.run_id]))

    page = text(response)
    for words in ("bonus version 1", "asker", "prepare", "Bonus for Ada", "go on", "approval.answered", address(asked)):
        assert words in page
    assert "default-src 'self'" in response["Content-Security-Policy"]


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
    assert all("LIMIT 10000" in sql for sql in counts)


def test_a_run_of_somebody_else_is_not_there(asked: ApprovalRequest, person: People, browse: Browse, asker: User):
    page = reverse("admin:durableflows_workflowrun_change", args=[asked.run_id])

    assert browse(asker).get(page).status_code == 200
    assert browse(person("nobody")).get(page).status_code in (302, 403)
    assert browse(person("nobody2")).get("/admin/durableflows/workflowrun/").status_code == 403
