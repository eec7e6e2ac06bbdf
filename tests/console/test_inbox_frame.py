"""The inbox stands in the project's frame, or in a plain one of its own where the project has none."""

from copy import deepcopy
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import override_settings

from durableflows.models import ApprovalRequest
from tests.support.pages import Browse, inbox_address, text

pytestmark = pytest.mark.django_db

INBOX = "/durableflows/inbox/"


def templates(*folders: Path) -> override_settings:
    """TEMPLATES with these folders of the project before the engine's own."""
    found = deepcopy(settings.TEMPLATES)
    found[0]["DIRS"] = list(folders)
    return override_settings(TEMPLATES=found)


def test_it_stands_in_the_frame_of_the_project(asked: ApprovalRequest, manager: User, browse: Browse):
    for address in (INBOX, inbox_address(asked)):
        page = text(browse(manager).get(address))
        assert 'class="co-brand"' in page
        assert page.count("durableflows/inbox.css") == 1
        assert page.count("durableflows/inbox.js") == 1


def test_it_has_a_frame_of_its_own(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    with templates():
        for address in (INBOX, inbox_address(asked), inbox_address(asked, "decided")):
            page = text(client.get(address, follow=True))
            assert 'class="df-body"' in page
            assert "co-brand" not in page
            assert page.count("durableflows/inbox.css") == 1
            assert 'action="/logout/"' in page


def test_a_project_puts_its_own_into_a_page(asked: ApprovalRequest, manager: User, browse: Browse, tmp_path: Path):
    own = tmp_path / "durableflows" / "inbox" / "decision.html"
    own.parent.mkdir(parents=True)
    own.write_text(
        '{% extends "durableflows/inbox/decision.html" %}{% block why %}{{ block.super }}<p>Her file</p>{% endblock %}'
    )
    client = browse(manager)

    with templates(tmp_path):
        page = text(client.get(inbox_address(asked)))

    assert "<p>Her file</p>" in page
    assert "Loyal since" in page
    assert 'value="approve"' in page
