"""Who asked reads how far it is: whom it waits for since when, to whom it goes, how it ended."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from durableflows import api
from durableflows.models import ApprovalRequest
from tests.support.bonus import OTHER_PERMISSION
from tests.support.pages import Ask, Browse, People, inbox_address, text

pytestmark = pytest.mark.django_db


def test_it_says_whom_it_waits_for_and_to_whom_it_goes(asked: ApprovalRequest, asker: User, browse: Browse):
    expires = asked.created_at + timedelta(days=3)
    ladder = [{"permission": OTHER_PERMISSION, "expires_seconds": 86_400}]
    ApprovalRequest.objects.update(ladder=ladder, expires_at=expires)

    page = text(browse(asker).get(inbox_address(asked, "asked")))

    day = f"{expires:%a} {expires.day} {expires:%b}"
    assert "Waiting for people with the permission “Can change group” since" in page
    assert f"it goes to people with the permission “Can delete group” on {day}" in page
    assert f"it is rejected on {expires + timedelta(days=1):%a}" in page


def test_it_says_how_many_have_approved(ask: Ask, manager: User, asker: User, browse: Browse):
    asked = ask(quorum=2)
    api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest)

    assert "1 of 2 have approved" in text(browse(asker).get(inbox_address(asked, "asked")))


@pytest.mark.parametrize(("verdict", "words"), [("approve", "Approved"), ("reject", "Rejected")])
def test_it_says_how_it_ended_and_who_decided(
    verdict: str, words: str, asked: ApprovalRequest, manager: User, asker: User, browse: Browse
):
    api.answer(asked.pk, verdict, by=manager, facts_digest=asked.facts_digest, comment="I looked.")

    page = text(browse(asker).get(inbox_address(asked, "asked")))

    assert f"{words} at " in page
    assert "by manager." in page
    assert "I looked." in page


def test_it_is_there_for_who_asked_alone(asked: ApprovalRequest, manager: User, person: People, browse: Browse):
    for somebody in (manager, person("root", is_superuser=True)):
        assert browse(somebody).get(inbox_address(asked, "asked")).status_code == 404


def test_what_i_asked_for_leads_there(asked: ApprovalRequest, asker: User, browse: Browse):
    page = text(browse(asker).get("/durableflows/inbox/", {"show": "asked"}))

    assert f'href="{inbox_address(asked, "asked")}"' in page


def test_a_question_to_who_asked_stands_above_the_own_inbox_until_it_is_answered(
    asked: ApprovalRequest, manager: User, asker: User, browse: Browse
):
    api.ask_requester(asked.pk, "Since when is she here?", by=manager)

    page = text(browse(asker).get("/durableflows/inbox/"))
    theirs = text(browse(manager).get("/durableflows/inbox/"))
    api.reply(asked.pk, "Since 2019.", by=asker)
    later = text(browse(asker).get("/durableflows/inbox/"))

    assert "Since when is she here?" in page
    assert f'href="{inbox_address(asked, "asked")}"' in page
    assert "Since when is she here?" not in theirs + later


def test_what_was_withdrawn_is_called_so(asked: ApprovalRequest, asker: User, browse: Browse):
    api.withdraw(asked.pk, by=asker, reason="not needed")

    page = text(browse(asker).get(inbox_address(asked, "asked")))

    assert f"Withdrawn at {asked.run.created_at:%H:}" in page
    assert "by asker." in page
    assert "<p>Nobody.</p>" in page
