"""Only those who may decide do, never by looking, and what others wrote stays text (R24-R28)."""

import logging
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from durableflows.models import ApprovalDecision, ApprovalRequest
from tests.support.bonus import OTHER_PERMISSION, PERMISSION, SHOWN
from tests.support.pages import HOSTILE, LIST, Ask, Browse, People, address, answer, is_inert, rows, shown_in, text

pytestmark = pytest.mark.django_db


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
    assert "You asked for this yourself" in text(response)
    assert rows() == before


def test_another_superuser_decides(asked: ApprovalRequest, person: People, browse: Browse):
    assert answer(browse(person("root", is_superuser=True)), asked).status_code == 302


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
