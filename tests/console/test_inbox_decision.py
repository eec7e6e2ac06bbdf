"""A request is decided in the inbox as at every other door: once, on what was shown, in time, by who may (R22-R27)."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings

from durableflows import api, clock
from durableflows.core import registry
from durableflows.models import ApprovalDecision, ApprovalRequest, StepRun
from tests.support.bonus import OTHER_PERMISSION, PERMISSION, SHOWN
from tests.support.pages import HOSTILE, Ask, Browse, People, inbox_address, is_inert, rows, text

pytestmark = pytest.mark.django_db


def send(client: Client, asked: ApprovalRequest, verdict: str = "approve", **fields: Any) -> Any:
    data = {"verdict": verdict, "facts_digest": asked.facts_digest, **fields}
    return client.post(inbox_address(asked), data)


def test_the_page_shows_what_is_decided(asked: ApprovalRequest, manager: User, browse: Browse):
    page = text(browse(manager).get(inbox_address(asked)))

    for words in ("Bonus for Ada", "USD 600.00", "Loyal since", "2019", "asker", PERMISSION, "Nobody yet"):
        assert words in page
    assert "The run goes on with “pay”, which calls bonus.give at bank" in page
    assert "<strong>bonus.give</strong> at bank" in page
    assert "cannot be undone" in page
    assert 'value="approve"' in page


def test_who_is_no_member_of_staff_decides_as_well(asked: ApprovalRequest, manager: User, browse: Browse):
    User.objects.filter(pk=manager.pk).update(is_staff=False)
    client = browse(manager)

    response = send(client, asked, comment="fine by me")

    assert response["Location"] == inbox_address(asked, "decided")
    decision = ApprovalDecision.objects.get()
    assert (decision.actor, decision.door, decision.origin) == (manager, "inbox", "127.0.0.1")
    assert decision.comment == "fine by me"
    assert StepRun.objects.filter(run=asked.run_id, name="pay").exists()


def test_the_page_after_says_what_was_decided_and_leads_on(ask: Ask, manager: User, browse: Browse):
    asked, other = ask("Ada"), ask("Bo")
    client = browse(manager)

    page = text(client.get(send(client, asked, comment="go on")["Location"]))

    for words in ("You approved", "go on", "The run goes on by itself", "Next request:", "Bonus for Bo"):
        assert words in page
    assert f'href="{inbox_address(other)}"' in page


def test_a_repeat_is_friendly_and_does_nothing(asked: ApprovalRequest, manager: User, browse: Browse):
    """R22."""
    client = browse(manager)
    send(client, asked)
    before = rows()

    response = send(client, asked)

    assert response["Location"] == f"{inbox_address(asked, 'decided')}?again=1"
    assert "You had already" in text(client.get(response["Location"]))
    assert rows() == before


def test_a_second_person_is_told_who_decided_and_when(
    asked: ApprovalRequest, manager: User, person: People, browse: Browse
):
    """R22."""
    send(browse(manager), asked)
    before = rows()

    response = send(browse(person("second", PERMISSION)), asked, "reject")

    assert response.status_code == 409
    assert f"Already approved by manager at {ApprovalDecision.objects.get().at:%Y-%m-%d %H:%M}" in text(response)
    assert rows() == before


def test_two_must_approve_where_two_are_needed(ask: Ask, manager: User, person: People, browse: Browse):
    asked, client = ask(quorum=2), browse(manager)

    page = text(client.get(send(client, asked)["Location"]))

    assert "1 of 2 approvals that are needed are here" in page
    assert "1 of 2 have approved" in text(browse(person("second", PERMISSION)).get(inbox_address(asked)))


def test_changed_facts_are_shown_side_by_side(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    shown = client.get(inbox_address(asked)).context["shown"]
    SHOWN["amount"] = {"amount_minor": 90000, "currency": "USD"}

    response = send(client, asked, comment="fine by me", shown=shown)

    page = text(response)
    assert response.status_code == 409
    assert "<del><bdi>USD 600.00</bdi></del>" in page
    assert "<ins><bdi>USD 900.00</bdi></ins>" in page
    assert "fine by me" in page
    assert not ApprovalDecision.objects.exists()
    assert send(client, ApprovalRequest.objects.get()).status_code == 302


@pytest.mark.parametrize("method", ["get", "head", "options", "put", "patch", "delete"])
def test_only_a_post_decides(method: str, asked: ApprovalRequest, manager: User, browse: Browse):
    """R24."""
    client, before = browse(manager), rows()
    query = f"?verdict=approve&facts_digest={asked.facts_digest}"

    for someone in (client, Client()):
        for page in ("decision", "decided", "asked"):
            for _ in range(5):
                getattr(someone, method)(inbox_address(asked, page) + query)

    assert rows() == before
    assert send(client, asked).status_code == 302


def test_a_post_needs_the_csrf_token_in_its_body(asked: ApprovalRequest, manager: User):
    """R24."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(manager)
    token = client.get(inbox_address(asked)).context["csrf_token"]
    before, data = rows(), {"verdict": "approve", "facts_digest": asked.facts_digest}

    assert client.post(inbox_address(asked), data).status_code == 403
    assert client.post(f"{inbox_address(asked)}?csrfmiddlewaretoken={token}", data).status_code == 403
    assert rows() == before
    assert client.post(inbox_address(asked), {**data, "csrfmiddlewaretoken": str(token)}).status_code == 302


def test_an_answer_of_who_was_logged_out_is_not_taken_and_that_is_said(
    asked: ApprovalRequest, manager: User, browse: Browse
):
    before = rows()

    response = send(Client(), asked)

    assert response["Location"] == f"/login/?next={inbox_address(asked)}%3Funsent%3D1"
    assert "You were logged out when you sent it" in text(browse(manager).get(f"{inbox_address(asked)}?unsent=1"))
    assert rows() == before


def test_without_the_right_there_is_no_button_and_no_answer(asked: ApprovalRequest, person: People, browse: Browse):
    """R25."""
    viewer, before = browse(person("viewer", "durableflows.view_approvalrequest")), rows()

    page, response = text(viewer.get(inbox_address(asked))), send(viewer, asked)

    assert 'name="verdict"' not in page
    assert f"the permission {PERMISSION} is needed" in page
    assert response.status_code == 403
    assert f"the permission {PERMISSION} is needed" in text(response)
    assert rows() == before


def test_requests_that_a_person_may_not_see_are_not_there(asked: ApprovalRequest, person: People, browse: Browse):
    """R25."""
    client, before = browse(person("other", OTHER_PERMISSION)), rows()

    statuses = [client.get(inbox_address(asked, page)).status_code for page in ("decision", "decided", "asked")]

    assert statuses == [404, 404, 404]
    assert send(client, asked).status_code == 404
    assert client.get(f"/durableflows/inbox/{uuid4()}/").status_code == 404
    assert rows() == before


@pytest.mark.parametrize("change", ["right", "account"])
def test_rights_lost_between_looking_and_answering_are_lost(
    change: str, asked: ApprovalRequest, manager: User, browse: Browse
):
    """R26."""
    client = browse(manager)
    client.get(inbox_address(asked))
    if change == "right":
        manager.user_permissions.clear()
    else:
        User.objects.filter(pk=manager.pk).update(is_active=False)
    before = rows()

    assert send(client, asked).status_code in (302, 403, 404)
    assert rows() == before


@pytest.mark.parametrize("is_superuser", [False, True])
def test_nobody_decides_the_own_request(is_superuser: bool, ask: Ask, person: People, browse: Browse):
    """R27."""
    both = person("both", PERMISSION, is_superuser=is_superuser)
    asked = ask(by=both)
    before, client = rows(), browse(both)

    page, response = text(client.get(inbox_address(asked))), send(client, asked)

    assert "You asked for this yourself" in page
    assert 'name="verdict"' not in page
    assert response.status_code == 403
    assert rows() == before


def test_too_late_says_so_and_leads_on(ask: Ask, manager: User, browse: Browse):
    asked, other = ask("Ada"), ask("Bo")
    ApprovalRequest.objects.filter(pk=asked.pk).update(expires_at=clock.now() - timedelta(seconds=1))

    response = send(browse(manager), asked)

    assert response.status_code == 409
    assert "This request expired" in text(response)
    assert inbox_address(other) in text(response)


def test_a_withdrawn_run_closes_its_page(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    client.get(inbox_address(asked))
    api.cancel(asked.run_id, reason="changed his mind")

    assert "Already closed" in text(send(client, asked))
    assert 'name="verdict"' not in text(client.get(inbox_address(asked)))


def test_the_page_says_what_was_decided_before_about_the_same(ask: Ask, manager: User, person: People, browse: Browse):
    done, other, asked = ask("Ada"), ask("Bo"), ask("Ada")
    for one in (done, other):
        api.answer(one.pk, "reject", by=manager, facts_digest=one.facts_digest)

    page = text(browse(manager).get(inbox_address(asked)))

    before = page[page.index("Decided before") :]
    assert inbox_address(done) in before
    assert inbox_address(other) not in page


@override_settings(DURABLEFLOWS={"TENANTS_OF": "tests.support.tenants.of"})
def test_of_those_who_are_asked_too_only_people_of_the_tenant_are_named_and_offered(
    asked: ApprovalRequest, person: People, browse: Browse
):
    """S2.25: who works for another tenant is none of this person's business, and could not answer."""
    ApprovalRequest.objects.update(tenant="acme")
    ann, *_ = (person(name, PERMISSION) for name in ("acme-ann", "acme-cy", "other-bob"))

    page = text(browse(ann).get(inbox_address(asked)))

    assert '<option value="acme-cy">' in page
    assert "<bdi>acme-cy</bdi>" in page
    assert "other-bob" not in page


def test_a_deleted_person_keeps_the_name_on_the_page(
    asked: ApprovalRequest, manager: User, person: People, browse: Browse
):
    send(browse(manager), asked)
    manager.delete()
    User.objects.get(username="asker").delete()

    page = text(browse(person("root", is_superuser=True)).get(inbox_address(asked)))

    assert "<bdi>manager</bdi></strong> approved" in page
    assert "<bdi>asker</bdi>" in page


def test_the_page_works_for_a_workflow_that_this_process_does_not_know(
    asked: ApprovalRequest, manager: User, browse: Browse
):
    client = browse(manager)
    with registry.isolated():
        page, refused = client.get(inbox_address(asked)), send(client, asked)

    assert page.status_code == 200
    assert refused.status_code == 409
    assert "No workflow" in text(refused)


def test_hostile_text_is_inert(ask: Ask, manager: User, person: People, browse: Browse):
    """R28."""
    asked, client = ask(HOSTILE), browse(person("root", is_superuser=True))
    SHOWN[HOSTILE] = {HOSTILE: [HOSTILE]}
    pages = [client.get(inbox_address(asked)), send(client, asked, comment=HOSTILE)]
    fresh = ApprovalRequest.objects.get()
    done = send(client, fresh, "reject", comment=HOSTILE)
    pages += [client.get(done["Location"]), client.get(inbox_address(fresh)), send(browse(manager), fresh)]

    assert [page.status_code for page in pages] == [200, 409, 200, 200, 409]
    assert [number for number, page in enumerate(pages) if not is_inert(text(page))] == []


def test_pages_ask_the_database_little(ask: Ask, manager: User, browse: Browse, django_assert_max_num_queries: Any):
    asked, client = ask(), browse(manager)
    for number in range(5):
        ask(f"No. {number}")

    with django_assert_max_num_queries(14):
        client.get(inbox_address(asked))
    address = send(client, asked)["Location"]
    with django_assert_max_num_queries(14):
        client.get(address)


def test_the_rules_name_who_asked_and_keep_nobody_out_where_the_system_asked(
    asked: ApprovalRequest, ask: Ask, manager: User, browse: Browse
):
    page = text(browse(manager).get(inbox_address(asked)))
    ApprovalRequest.objects.filter(pk=asked.pk).update(requester=None, requester_name="")
    of_system = text(browse(manager).get(inbox_address(asked)))

    assert "asker, who asked for it, and whoever acts for asker, not even as an administrator" in page
    assert "Who may not" not in of_system


def test_who_asked_is_led_from_the_decision_to_the_own_page(asked: ApprovalRequest, asker: User, browse: Browse):
    page = text(browse(asker).get(inbox_address(asked)))

    assert f'href="{inbox_address(asked, "asked")}"' in page
    assert 'name="verdict"' not in page
