"""What could disguise in a text of others is spelled out on every page, in the log, and nowhere goes through (R28)."""

import logging
import re
from unicodedata import category

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from durableflows.models import ApprovalDecision, ApprovalRequest
from tests.support.bonus import PERMISSION, SHOWN
from tests.support.doors import Several, words_of
from tests.support.pages import LIST, Ask, Browse, People, address, answer

pytestmark = pytest.mark.django_db

DISGUISED = "p\u0430ypal\u202elatot\u200b\u2066 6\u03360 \u3164end\x1b[2J"
HIDDEN = {"\u202e", "\u200b", "\u2066", "\u0336", "\u3164", "\x1b"}


def read(response: object) -> str:
    """A page without what only carries a value along, such as the text that somebody is typing."""
    page = re.sub(r'<input type="(?:hidden|search)"[^>]*>', "", words_of(response))
    page = re.sub(r'<input id="df-search"[^>]*>', "", page)
    return re.sub(r"<textarea.*?</textarea>", "", page, flags=re.DOTALL)


def hidden_in(text: str) -> list[str]:
    """Each place where something hides, with what stands around it."""
    return [repr(text[max(0, at - 60) : at + 20]) for at, one in enumerate(text) if one in HIDDEN]


def test_no_page_shows_a_disguise(ask: Ask, person: People, browse: Browse) -> None:
    root = browse(person("root", is_superuser=True))
    asked = ask(DISGUISED)
    SHOWN[DISGUISED] = {DISGUISED: [DISGUISED]}
    pages = [root.get(address(asked)), root.get(LIST), answer(root, asked, comment=DISGUISED)]
    fresh = ApprovalRequest.objects.get()
    pages += [root.get(f"{LIST}several/", {"request": str(fresh.pk)}), root.get(LIST, {"q": DISGUISED})]
    done = answer(root, fresh, "reject", comment=DISGUISED)
    pages += [
        root.get(done["Location"]),
        root.get(address(asked)),
        answer(browse(person("late", PERMISSION)), fresh),
        root.post(f"{LIST}several/", {"request": f"{fresh.pk}:{fresh.facts_digest}", "verdict": "approve"}),
        root.get(reverse("admin:durableflows_workflowrun_change", args=[asked.run_id])),
        root.get("/admin/durableflows/workflowrun/"),
        root.get("/admin/durableflows/runevent/"),
        root.get("/admin/durableflows/approvaldecision/"),
        root.get("/admin/durableflows/requestview/"),
        root.get(reverse("admin:durableflows_approvaldecision_change", args=[ApprovalDecision.objects.get().pk])),
        root.get("/admin/durableflows/steprun/"),
    ]

    for number, page in enumerate(pages):
        assert page.status_code in (200, 409), number
        text = read(page)
        assert not hidden_in(text), (number, page.request["PATH_INFO"])
        assert "p\u0430ypal" not in text, (number, page.request["PATH_INFO"])
        assert not [one for one in text if category(one) == "Cf"], number
    assert "p⟦Cyrillic \u0430⟧ypal⟦U+202E⟧latot" in read(pages[0])


def test_names_of_people_are_no_disguise_either(ask: Ask, person: People, browse: Browse) -> None:
    name = "b\u043ess\u202e"
    boss = person(name, PERMISSION)
    asked = ask("Ada", by=person("\u0430sker\u200b"))
    answer(browse(boss), asked)
    root = browse(person("root", is_superuser=True))

    for path in (address(asked), LIST + "?standing=all", "/admin/durableflows/approvaldecision/"):
        text = read(root.get(path))
        assert not hidden_in(text), path
        assert name not in text


def test_a_log_line_is_one_line(asked: ApprovalRequest, person: People, caplog: pytest.LogCaptureFixture) -> None:
    """R28: neither a name nor an error's words begin a line of the log."""
    hostile = person("eve\nERROR root: paid\x1b[2J", "durableflows.view_approvalrequest")

    with caplog.at_level(logging.WARNING, logger="durableflows.admin"):
        Several(hostile).answer(asked)

    (record,) = caplog.records
    assert "eve" in record.getMessage()
    assert not {"\n", "\x1b", "\r"} & set(record.getMessage())


def test_a_manager_sees_a_very_long_text_folded(ask: Ask, manager: User, browse: Browse) -> None:
    asked = ask("Donaudampf" * 500)

    page = words_of(browse(manager).get(address(asked)))

    assert '<details class="df-long">' in page
    assert len(ApprovalRequest.objects.get().title) <= 300
