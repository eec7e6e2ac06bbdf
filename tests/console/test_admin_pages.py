"""Each page of the engine in the admin is shown, by its own policy, and holds nothing that the policy would refuse.

Runs in stock admin with all other tests, and under django-unfold in a process of its own (test_admin_unfold.py).
"""

import json
import re
from html.parser import HTMLParser
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Model
from django.urls import reverse

from durableflows import api
from durableflows.admin.readonly import ReadOnly
from durableflows.models import ApprovalRequest, SideEffect, StepRun
from durableflows.runner import run_step
from tests.support.bonus import PERMISSION, SHOWN
from tests.support.pages import HOSTILE, LIST, Ask, Browse, People, address, answer, is_inert, result, shown_in, text

pytestmark = pytest.mark.django_db

OURS = sorted(
    model._meta.model_name or "" for model, shown in admin.site._registry.items() if isinstance(shown, ReadOnly)
)


@pytest.fixture
def root(person: People) -> User:
    return person("root", is_superuser=True)


@pytest.fixture
def paid(ask: Ask, manager: User) -> ApprovalRequest:
    """A request that was approved, and whose bonus was given."""
    asked = ask(HOSTILE)
    api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest, comment=HOSTILE)
    assert run_step(asked.run_id, StepRun.objects.get(run=asked.run_id, name="pay").pk)
    return asked


def our_part(response: Any) -> str:
    """The page without the frame that the theme draws around it."""
    page = text(response)
    return page[page.index('<div class="df">') : page.index("<!-- df ends -->")]


def check(response: Any) -> str:
    """What holds for every page; gives its own part."""
    part = our_part(response)
    policy = response["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "object-src 'none'" in policy
    assert ("unsafe" in policy) == apps.is_installed("unfold")
    assert "script-src 'self' 'unsafe-inline'" not in policy
    assert not re.search(r"<script|<style|\sstyle=|\son\w+=[\"']?\w", part), part
    assert is_inert(text(response))
    assert "durableflows/durableflows.css" in text(response)
    return part


@pytest.mark.parametrize("model", OURS)
def test_every_list_is_shown(model: str, paid: ApprovalRequest, root: User, browse: Browse):
    response = browse(root).get(f"/admin/durableflows/{model}/")

    assert response.status_code == 200
    assert 'id="df-list"' in check(response)


@pytest.mark.parametrize("model", OURS)
def test_every_row_is_shown(model: str, paid: ApprovalRequest, root: User, browse: Browse):
    row: Model | None = apps.get_model("durableflows", model)._default_manager.first()
    if row is None:  # none of these exists yet: its list says so
        assert "There is nothing to show" in our_part(browse(root).get(f"/admin/durableflows/{model}/"))
        return

    response = browse(root).get(reverse(f"admin:durableflows_{model}_change", args=[row.pk]), follow=True)

    assert response.status_code == 200
    check(response)


def test_the_page_of_a_row_says_on_top_what_it_is(paid: ApprovalRequest, root: User, browse: Browse):
    row = SideEffect.objects.get()

    response = browse(root).get(reverse("admin:durableflows_sideeffect_change", args=[row.pk]))

    assert '<h1 class="df-title"><bdi>Side effect</bdi></h1>' in check(response)


@pytest.mark.parametrize("model", OURS)
def test_the_admins_own_history_leads_to_the_row(model: str, root: User, browse: Browse):
    """Nobody changes rows in the admin, so its log of changes would be an empty page."""
    key = uuid4()

    response = browse(root).get(reverse(f"admin:durableflows_{model}_history", args=[key]))

    assert (response.status_code, response["Location"]) == (
        302,
        reverse(f"admin:durableflows_{model}_change", args=[key]),
    )


def test_every_page_of_a_decision_is_shown(ask: Ask, manager: User, person: People, browse: Browse):
    asked, client = ask(HOSTILE), browse(manager)
    posted = shown_in(client, asked)
    SHOWN[HOSTILE] = {HOSTILE: [HOSTILE]}

    stale = client.post(address(asked), {"verdict": "approve", "comment": HOSTILE, **posted})
    fresh = ApprovalRequest.objects.get()
    done = answer(client, fresh, "reject", comment=HOSTILE)
    late = answer(browse(person("second", PERMISSION)), fresh)
    pages = [stale, client.get(done["Location"]), late, client.get(address(fresh)), client.get(LIST)]

    assert [page.status_code for page in pages] == [409, 200, 409, 200, 200]
    assert done["Location"] == result(asked)
    for page in pages:
        check(page)


def test_the_page_of_a_run_says_what_is_known(paid: ApprovalRequest, root: User, browse: Browse):
    part = check(browse(root).get(reverse("admin:durableflows_workflowrun_change", args=[paid.run_id])))

    effect = SideEffect.objects.get()
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", part))
    for said in ("Where it stands", "Certain", "Unknown", "Safe to do now", "bonus.give: happened; bank calls it b_1"):
        assert said in words
    assert effect.key in part
    assert "key-1234567890" not in part


class Inputs(HTMLParser):
    """The hidden inputs of a page, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "input" and given.get("type") == "hidden":
            self.values[str(given.get("name"))] = given.get("value") or ""


def test_embedded_json_is_what_was_shown(ask: Ask, manager: User, browse: Browse):
    """R28: whatever the facts hold, a browser reads the same JSON."""
    asked = ask(HOSTILE)
    inputs = Inputs()
    inputs.feed(text(browse(manager).get(address(asked))))

    assert json.loads(inputs.values["shown"]) == asked.binding
