"""What people do with a run: only what is legal and theirs, with a preview, a reason, and a no to a stale page."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, RequestFactory

from durableflows import Money, api
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.reading.acting import Acting
from tests.console.test_run_list import doubtful
from tests.console.test_run_page import words_of
from tests.support.pages import Browse, People, rows, text

pytestmark = pytest.mark.django_db

RUNS = "/durableflows/runs/"


def page_of(run_id: Any, verb: str) -> str:
    return f"{RUNS}{run_id}/do/{verb}/"


@pytest.fixture
def client(operator: User, browse: Browse) -> Client:
    return browse(operator)


def order(client: Client, run_id: Any, verb: str, **given: Any) -> Any:
    """Fill in what is asked, look at what it would do, and send it with a reason."""
    reason = given.pop("reason", "the customer asked")
    seen = client.post(page_of(run_id, verb), {"look": "yes", **given})
    assert seen.context["looked"] is not None, words_of(text(seen))
    return client.post(
        page_of(run_id, verb), {**given, "do": "yes", "reason": reason, "shown": seen.context["looked"].text}
    )


def state_of(run_id: Any) -> str:
    return str(WorkflowRun.objects.get(pk=run_id).state)


def test_the_run_page_offers_what_is_legal_now(asked: ApprovalRequest, client: Client):
    page = text(client.get(f"{RUNS}{asked.run_id}/"))

    for verb in ("cancel", "pause", "extend", "abandon"):
        assert page_of(asked.run_id, verb) in page
    for verb in ("resume", "retry", "edit", "redrive", "compensate"):
        assert page_of(asked.run_id, verb) not in page


def test_who_started_it_may_cancel_it_and_nothing_else(asked: ApprovalRequest, asker: User, browse: Browse):
    client = browse(asker)

    page = text(client.get(f"{RUNS}{asked.run_id}/"))
    assert page_of(asked.run_id, "cancel") in page
    assert page_of(asked.run_id, "pause") not in page
    for verb in ("pause", "resume", "retry", "extend", "edit", "redrive", "compensate", "abandon"):
        assert client.get(page_of(asked.run_id, verb)).status_code == 403, verb
        assert client.post(page_of(asked.run_id, verb), {"do": "yes", "reason": "x"}).status_code == 403, verb
    assert order(client, asked.run_id, "cancel").status_code == 302
    assert state_of(asked.run_id) == "CANCELLED"


def test_nobody_else_is_told_that_it_is_there(asked: ApprovalRequest, person: People, browse: Browse):
    assert browse(person("nobody")).get(page_of(asked.run_id, "cancel")).status_code == 404


def test_looking_does_nothing(asked: ApprovalRequest, client: Client):
    before = rows()

    for verb in ("cancel", "pause", "resume", "retry", "extend", "edit", "redrive", "compensate", "abandon"):
        assert client.get(page_of(asked.run_id, verb)).status_code == 200
    assert client.get(page_of(asked.run_id, "explode")).status_code == 404
    client.post(page_of(asked.run_id, "extend"), {"look": "yes", "hours": "5"})

    assert rows() == before


def test_a_verb_is_done_with_its_reason_on_record(asked: ApprovalRequest, client: Client):
    response = order(client, asked.run_id, "pause", reason="the provider asked for quiet")

    assert response["Location"] == f"{RUNS}{asked.run_id}/?did=pause"
    assert "The run is paused" in text(client.get(response["Location"]))
    event = RunEvent.objects.get(run=asked.run_id, kind="run.paused")
    assert (event.actor_name, event.data["reason"]) == ("operator", "the provider asked for quiet")
    assert order(client, asked.run_id, "resume").status_code == 302
    assert state_of(asked.run_id) == "WAITING_HUMAN"


def test_without_a_reason_nothing_is_done(asked: ApprovalRequest, client: Client):
    for reason in ("", "   ", "\u2800"):
        response = order(client, asked.run_id, "pause", reason=reason)
        assert response.status_code == 400
        assert "Say why" in text(response)
    assert state_of(asked.run_id) == "WAITING_HUMAN"


def test_the_preview_says_what_is_closed_confirmed_and_unknown_with_money(asked: ApprovalRequest, client: Client):
    effect = doubtful(asked.run)
    SideEffect.objects.filter(pk=effect.pk).update(arguments={"amount": {"amount_minor": 60000, "currency": "USD"}})

    words = words_of(text(client.get(page_of(asked.run_id, "cancel"))))

    assert "the request 'Bonus for Ada'" in words.replace("&#x27;", "'")
    assert "Unknown: may have happened, and is settled first or stays to be settled: USD 600.00" in words


def test_a_stale_page_is_refused_and_says_what_changed(asked: ApprovalRequest, client: Client):
    shown = client.get(page_of(asked.run_id, "cancel")).context["looked"].text
    doubtful(asked.run)

    response = client.post(page_of(asked.run_id, "cancel"), {"do": "yes", "reason": "x", "shown": shown})

    assert response.status_code == 409
    assert "New: unknown: may have happened" in text(response)
    assert "bonus.give" in text(response)
    assert state_of(asked.run_id) == "WAITING_HUMAN"


def test_a_page_that_lets_a_run_go_on_counts_for_the_reason_and_the_state_that_it_was_looked_at_for(
    asked: ApprovalRequest, client: Client
):
    given = {"resume": {}, "redrive": {"step": "prepare"}}
    for change in ("another pause", "another state"):
        api.pause(asked.run_id, reason="stock is counted")
        seen = {verb: client.post(page_of(asked.run_id, verb), {"look": "yes", **given[verb]}) for verb in given}
        if change == "another pause":
            api.resume(asked.run_id, reason="counted")
            api.pause(asked.run_id, reason="somebody else’s card")
        else:
            api.edit(asked.run_id, reason="typo", changes={"amount": Money(990000, "USD")})

        for verb, page in seen.items():
            shown = {"shown": page.context["looked"].text, "do": "yes", "reason": "counted", **given[verb]}
            response = client.post(page_of(asked.run_id, verb), shown)
            assert response.status_code == 409, (change, verb)
        said = {"another pause": "somebody else’s card", "another state": "New: the state: checkpoint 1"}
        assert said[change] in words_of(text(response))
        assert order(client, asked.run_id, "resume").status_code == 302


def test_other_sums_make_a_page_stale_and_who_has_only_started_it_sees_none(
    asked: ApprovalRequest, client: Client, asker: User, browse: Browse
):
    effects = SideEffect.objects.filter(pk=doubtful(asked.run).pk)
    effects.update(arguments={"amount": {"amount_minor": 60000, "currency": "USD"}})
    shown = client.get(page_of(asked.run_id, "cancel")).context["looked"].text
    assert "600.00" not in text(browse(asker).get(page_of(asked.run_id, "cancel")))
    effects.update(arguments={"amount": {"amount_minor": 70000, "currency": "USD"}})

    response = client.post(page_of(asked.run_id, "cancel"), {"do": "yes", "reason": "x", "shown": shown})

    assert response.status_code == 409
    assert "USD 700.00" in text(response)


def test_what_is_no_longer_legal_is_refused(asked: ApprovalRequest, client: Client):
    shown = client.get(page_of(asked.run_id, "pause")).context["looked"].text
    api.cancel(asked.run_id, reason="over")

    response = client.post(page_of(asked.run_id, "pause"), {"do": "yes", "reason": "x", "shown": shown})

    assert response.status_code == 409
    assert "It would be refused" in text(response)


def test_more_time_and_budget_are_given(asked: ApprovalRequest, client: Client):
    before = WorkflowRun.objects.get(pk=asked.run_id).deadline_at

    assert order(client, asked.run_id, "extend", hours="48").status_code == 302

    assert (WorkflowRun.objects.get(pk=asked.run_id).deadline_at - before).days == 2
    assert client.post(page_of(asked.run_id, "extend"), {"look": "yes", "hours": "-1"}).status_code == 400


def test_a_page_that_is_sent_twice_gives_more_time_once(asked: ApprovalRequest, client: Client):
    before = WorkflowRun.objects.get(pk=asked.run_id).deadline_at
    seen = client.post(page_of(asked.run_id, "extend"), {"look": "yes", "hours": "48"})
    given = {"do": "yes", "reason": "x", "hours": "48", "shown": seen.context["looked"].text}

    statuses = [client.post(page_of(asked.run_id, "extend"), given).status_code for _ in range(2)]

    assert statuses == [302, 409]
    assert (WorkflowRun.objects.get(pk=asked.run_id).deadline_at - before).days == 2


def test_a_page_that_is_sent_twice_in_one_moment_gives_more_time_once(asked: ApprovalRequest, operator: User):
    """Both look at the run before either of them has done anything."""
    given = {"do": "yes", "reason": "x", "hours": "48"}
    run = WorkflowRun.objects.get(pk=asked.run_id)
    request = RequestFactory().post("/", given)
    request.user = operator
    given["shown"] = Acting(request, run, "extend").looked.text  # type: ignore[union-attr]
    request = RequestFactory().post("/", given)
    request.user = operator

    both = [Acting(request, WorkflowRun.objects.get(pk=run.pk), "extend") for _ in range(2)]

    assert [acting.order()[0] for acting in both] == [200, 409]


def test_ends_of_lines_that_nobody_has_changed_stay(asked: ApprovalRequest, client: Client):
    """A browser sends each of them as CR LF, and a field of one line would lose them."""
    api.pause(asked.run_id, reason="look at it")
    api.edit(asked.run_id, reason="a poem", changes={"customer": "Ada\r\nof\rLovelace\n"})
    form = client.get(page_of(asked.run_id, "edit")).context["form"]
    fields = {field.html_name: field.value() for field in form} | {"field-customer": "Ada\r\nof\r\nLovelace\r\n"}

    seen = client.post(page_of(asked.run_id, "edit"), {"look": "yes", **fields})

    assert "<textarea" in str(form["field-customer"])
    assert "say what changes" in text(seen)
    changed = fields | {"field-customer": "Ada\r\nLovelace"}
    assert order(client, asked.run_id, "edit", **changed).status_code == 302
    assert WorkflowRun.objects.get(pk=asked.run_id).data["customer"] == "Ada\nLovelace"


def test_a_large_field_stands_in_no_other_ones_way(client: Client):
    run = api.start("bonus", {"amount": Money(60000, "USD"), "customer": "x" * 150_000}, version=1)
    api.pause(run.pk, reason="look at it")
    form = client.get(page_of(run.pk, "edit")).context["form"]
    fields = {field.html_name: field.value() for field in form}
    less = json.dumps({"amount_minor": 5, "currency": "USD"})

    assert order(client, run.pk, "edit", **{**fields, "field-amount": less}).status_code == 302
    assert WorkflowRun.objects.get(pk=run.pk).data["amount"]["amount_minor"] == 5


def test_the_state_is_changed(asked: ApprovalRequest, client: Client):
    api.pause(asked.run_id, reason="look at it")
    form = client.get(page_of(asked.run_id, "edit")).context["form"]
    fields = {field.html_name: field.value() for field in form}

    response = order(client, asked.run_id, "edit", **{**fields, "field-customer": "Bo"})

    assert response.status_code == 302
    run = WorkflowRun.objects.get(pk=asked.run_id)
    assert run.data["customer"] == "Bo"
    assert run.data["amount"] == {"amount_minor": 60000, "currency": "USD"}


def test_a_field_of_the_state_that_looks_secret_is_not_offered(asked: ApprovalRequest, client: Client):
    api.pause(asked.run_id, reason="look at it")
    data = WorkflowRun.objects.get(pk=asked.run_id).data
    WorkflowRun.objects.filter(pk=asked.run_id).update(data={**data, "api_key": "hunter2"})

    page = client.get(page_of(asked.run_id, "edit"))

    assert "field-customer" in text(page)
    assert "api_key" not in text(page)
    assert "hunter2" not in text(page)


def test_what_is_nested_beyond_all_sense_is_refused_at_each_field(asked: ApprovalRequest, client: Client):
    deep = "[" * 30_000 + "]" * 30_000
    api.pause(asked.run_id, reason="look at it")
    form = client.get(page_of(asked.run_id, "edit")).context["form"]
    fields = {field.html_name: field.value() for field in form}

    edited = client.post(page_of(asked.run_id, "edit"), {"look": "yes", **fields, "field-amount": deep})
    effect = doubtful(asked.run)
    given = {"verdict": "happened", "receipt": deep, "reason": "x", "row_version": effect.row_version}

    assert "It would be refused" in text(edited)
    assert client.post(resolve_page(effect), given).status_code == 400
    said = client.post(page_of(asked.run_id, "cancel"), {"do": "yes", "reason": "x", "shown": deep})
    assert said.status_code == 409
    assert state_of(asked.run_id) == "PARKED"


def test_an_edit_that_does_not_fit_is_refused_in_words(asked: ApprovalRequest, client: Client):
    api.pause(asked.run_id, reason="look at it")
    form = client.get(page_of(asked.run_id, "edit")).context["form"]
    fields = {field.html_name: field.value() for field in form}

    response = client.post(page_of(asked.run_id, "edit"), {"look": "yes", **fields, "field-amount": "much"})

    assert "It would be refused" in text(response)
    assert "amount" in words_of(text(response))


def test_a_run_is_abandoned_to_a_person(asked: ApprovalRequest, client: Client, person: People):
    person("heir", "durableflows.operate_run")

    assert client.post(page_of(asked.run_id, "abandon"), {"look": "yes", "heir": "nobody"}).status_code == 400
    assert order(client, asked.run_id, "abandon", heir="heir").status_code == 302

    run = WorkflowRun.objects.get(pk=asked.run_id)
    assert (run.state, run.heir_name) == ("ABANDONED", "heir")


def test_a_parked_run_goes_on_from_an_earlier_step(asked: ApprovalRequest, client: Client):
    WorkflowRun.objects.filter(pk=asked.run_id).update(state="PARKED", parked_reason="needs a person")
    assert page_of(asked.run_id, "redrive") in text(client.get(f"{RUNS}{asked.run_id}/"))

    response = order(client, asked.run_id, "redrive", step="prepare")

    assert response.status_code == 302, words_of(text(response))
    assert StepRun.objects.filter(run=asked.run_id, name="prepare", state="READY").exists()


def test_a_stranger_who_was_logged_out_is_told_that_nothing_was_done(asked: ApprovalRequest, client: Client):
    response = Client().post(page_of(asked.run_id, "cancel"), {"do": "yes", "reason": "x"})

    assert response.status_code == 302
    assert "unsent" in response["Location"]
    assert "You were logged out" in text(client.get(page_of(asked.run_id, "cancel"), {"unsent": "1"}))


def test_forms_need_their_token(asked: ApprovalRequest, operator: User):
    client = Client(enforce_csrf_checks=True)
    client.force_login(operator)

    assert client.post(page_of(asked.run_id, "pause"), {"do": "yes", "reason": "x"}).status_code == 403
    assert state_of(asked.run_id) == "WAITING_HUMAN"


def resolve_page(effect: SideEffect) -> str:
    return f"{RUNS}{effect.run_id}/effects/{effect.pk}/"


def test_a_verdict_is_given_once_for_the_row_that_was_shown(
    asked: ApprovalRequest, client: Client, asker: User, browse: Browse
):
    effect = doubtful(asked.run)
    given = {"verdict": "happened", "receipt": json.dumps({"id": "b_9", "note": "seen"}), "reason": "looked"}

    assert resolve_page(effect) in text(client.get(f"{RUNS}{asked.run_id}/ledger/"))
    assert browse(asker).get(resolve_page(effect)).status_code == 403
    assert client.post(resolve_page(effect), {**given, "row_version": 77}).status_code == 409
    for receipt in ("{", '""', "[]", "{}"):
        assert client.post(resolve_page(effect), {**given, "receipt": receipt, "row_version": 0}).status_code == 400
    no_object = client.post(resolve_page(effect), {**given, "receipt": '"b_9"', "row_version": effect.row_version})
    assert no_object.status_code == 409, "what it is like is for its effect to say, which may give a text"
    assert SideEffect.objects.get(pk=effect.pk).state == "UNKNOWN"
    response = client.post(resolve_page(effect), {**given, "row_version": effect.row_version})

    assert response.status_code == 302, words_of(text(response))
    row = SideEffect.objects.get(pk=effect.pk)
    assert (row.state, row.verdict_by, row.receipt) == ("CONFIRMED", "operator", {"id": "b_9", "note": "seen"})
    assert client.get(resolve_page(effect).replace(str(asked.run_id), str(effect.pk))).status_code == 404


def start(name: str) -> WorkflowRun:
    return api.start("bonus", {"amount": Money(60000, "USD"), "customer": name}, key=f"bonus-{name}", version=1)


def bulk(client: Client, verb: str, *runs: WorkflowRun, **more: str) -> Any:
    """Choose runs, look at what it would do to each, and send it."""
    seen = client.get(f"{RUNS}bulk/", {"verb": verb, "run": [str(run.pk) for run in runs]})
    shown = {f"shown-{row.run.pk}": row.digest for row in seen.context["rows"]}
    ids = [str(row.run.pk) for row in seen.context["rows"]]
    return client.post(f"{RUNS}bulk/", {"verb": verb, "run": ids, "reason": "all of them", **shown, **more})


def test_in_bulk_each_run_has_a_result_of_its_own(client: Client):
    ada, bo, cy = start("ada"), start("bo"), start("cy")
    api.cancel(bo.pk, reason="over")

    response = bulk(client, "pause", ada, bo, cy)

    assert [(row.run.pk, row.tone) for row in response.context["rows"]] == [
        (ada.pk, "good"),
        (bo.pk, "bad"),
        (cy.pk, "good"),
    ]
    assert [state_of(run.pk) for run in (ada, bo, cy)] == ["PARKED", "CANCELLED", "PARKED"]
    assert "The run is cancelled: it does not go on." in words_of(text(response))


def test_in_bulk_what_has_changed_is_left_alone(client: Client):
    ada, bo = start("ada"), start("bo")

    response = bulk(client, "cancel", ada, bo, **{f"shown-{ada.pk}": "0" * 64})

    assert [row.tone for row in response.context["rows"]] == ["look", "good"]
    assert [state_of(run.pk) for run in (ada, bo)] == ["PENDING", "CANCELLED"]


def test_in_bulk_only_what_may_be_seen_and_done(client: Client, person: People, browse: Browse):
    ada = start("ada")
    WorkflowRun.objects.filter(pk=ada.pk).update(tenant="north")

    assert bulk(client, "cancel", ada).context["rows"] == []
    assert client.get(f"{RUNS}bulk/", {"verb": "abandon"}).status_code == 400
    assert browse(person("viewer", "durableflows.view_workflowrun")).get(f"{RUNS}bulk/").status_code == 403
    assert state_of(ada.pk) == "PENDING"


def test_in_bulk_without_a_reason_nothing_is_done(client: Client):
    ada = start("ada")

    response = bulk(client, "cancel", ada, reason=" ")

    assert response.status_code == 400
    assert state_of(ada.pk) == "PENDING"
