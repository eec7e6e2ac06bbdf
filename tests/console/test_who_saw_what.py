"""Who was shown which facts of a request, by which door, first and last; and what these facts were (S3.46)."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User

from durableflows import InvalidState, NotAllowed, NotFoundError, api, clock
from durableflows.models import ApprovalDecision, ApprovalRequest, RequestView
from durableflows.services.looks import facts_at
from durableflows.testing import FakeClock
from tests.support.bonus import PERMISSION, SHOWN
from tests.support.doors import Admin, Inbox, MailLink, Several
from tests.support.pages import Ask, Browse, People, address, answer, text

pytestmark = pytest.mark.django_db


def test_a_look_is_recorded_once_with_its_last_time(asked: ApprovalRequest, manager: User, browse: Browse) -> None:
    client, begin = browse(manager), clock.now()
    client.get(address(asked))
    with clock.replaced(FakeClock(begin + timedelta(hours=1))):
        client.get(address(asked))

    look = RequestView.objects.get()
    assert (look.person, look.person_name, look.door, look.origin) == (manager, "manager", "admin", "127.0.0.1")
    assert look.facts_digest == asked.facts_digest
    assert look.last_at - look.first_at > timedelta(minutes=59)


def test_other_facts_and_another_door_are_other_looks(asked: ApprovalRequest, manager: User, browse: Browse) -> None:
    client = browse(manager)
    client.get(address(asked))
    SHOWN["amount"] = {"amount_minor": 90000, "currency": "USD"}
    assert answer(client, asked).status_code == 409  # and shows the new ones
    for door in (Several, Inbox, MailLink):
        door(manager).look(asked)

    fresh = ApprovalRequest.objects.get()
    looks = list(RequestView.objects.values_list("door", "facts_digest"))
    assert looks == [
        ("admin", asked.facts_digest),
        ("admin", fresh.facts_digest),
        ("admin, several at once", fresh.facts_digest),
        ("inbox", fresh.facts_digest),
        ("mail link", fresh.facts_digest),
    ]
    assert facts_at(fresh, fresh.facts_digest) == fresh.binding
    assert facts_at(fresh, asked.facts_digest) == asked.binding
    assert facts_at(fresh, "0" * 64) is None


def test_facts_are_found_again_behind_several_changes(asked: ApprovalRequest, manager: User, browse: Browse) -> None:
    """Facts that came, changed and went away."""
    client, known = browse(manager), {asked.facts_digest: asked.binding}
    for shown in ({"bank": "old"}, {"bank": "new", "amount": 1}, {"note": None}, {}):
        SHOWN.clear()
        SHOWN.update(shown)
        answer(client, ApprovalRequest.objects.get())
        fresh = ApprovalRequest.objects.get()
        known[fresh.facts_digest] = fresh.binding

    assert len(known) == 4  # the last ones are the first again
    assert {digest: facts_at(ApprovalRequest.objects.get(), digest) for digest in known} == known


def test_who_does_not_look_is_not_recorded(asked: ApprovalRequest, manager: User, person: People) -> None:
    door = Admin(manager)
    door.client.head(address(asked))
    door.client.options(address(asked))
    Admin(None).look(asked)
    Admin(person("nobody")).look(asked)
    door.client.get("/admin/durableflows/approvalrequest/")

    assert not RequestView.objects.exists()


def test_the_page_says_who_has_looked(asked: ApprovalRequest, manager: User, person: People, browse: Browse) -> None:
    browse(person("second", PERMISSION)).get(address(asked))
    SHOWN["amount"] = 1
    answer(browse(manager), asked)

    page = text(browse(manager).get(address(asked)))

    assert "Who has looked (2)" in page
    assert "facts that have changed since" in page
    assert "these facts" in page


def test_a_page_of_the_project_records_its_looks(asked: ApprovalRequest, manager: User) -> None:
    api.note_shown(asked.pk, by=manager, facts_digest=asked.facts_digest, door="portal", origin="10.0.0.1")

    assert RequestView.objects.get().door == "portal"


def test_only_who_may_see_the_request_has_seen_it(asked: ApprovalRequest, manager: User, person: People) -> None:
    given: dict[str, Any] = {"facts_digest": asked.facts_digest, "door": "portal"}

    with pytest.raises(NotFoundError):
        api.note_shown(asked.pk, by=person("nobody"), **given)
    for somebody in (None, AnonymousUser()):
        with pytest.raises(NotAllowed):
            api.note_shown(asked.pk, by=somebody, **given)
    for wrong in ({"facts_digest": "short"}, {"door": "x" * 41}, {"door": "a\x00"}, {"origin": "x" * 201}):
        with pytest.raises(InvalidState):
            api.note_shown(asked.pk, by=manager, **{**given, **wrong})
    assert not RequestView.objects.exists()


def test_a_decision_keeps_who_where_from_and_under_which_right(asked: ApprovalRequest, manager: User) -> None:
    Several(manager).answer(asked)

    decision = ApprovalDecision.objects.get()
    assert (decision.door, decision.origin) == ("admin, several at once", "127.0.0.1")
    assert decision.permission == PERMISSION


def test_looks_are_listed_in_the_admin(ask: Ask, manager: User, person: People, browse: Browse) -> None:
    browse(manager).get(address(ask("Bo")))

    page = text(browse(person("root", is_superuser=True)).get("/admin/durableflows/requestview/"))

    assert "Bonus for Bo" in page
    assert "manager" in page
