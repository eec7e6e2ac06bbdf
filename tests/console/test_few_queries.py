"""R39: the pages of one request, and of the health, take less than 15 queries, whoever looks at whatever is there."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from durableflows import api, clock, journal
from durableflows.models import Addressee, ApprovalRequest, StepRun
from durableflows.models.locks import lock_run
from tests.support.bonus import PERMISSION
from tests.support.pages import Ask, Browse, People, address, inbox_address, result, text

pytestmark = pytest.mark.django_db

MOST_QUERIES = 14
HEALTH = "/durableflows/health/"


def taken(client: Client, page: str, **headers: str) -> int:
    """How many queries a page takes once a process is warm."""
    assert client.get(page, headers=headers).status_code == 200
    with CaptureQueriesContext(connection) as queries:
        client.get(page, headers=headers)
    return len(queries)


@pytest.fixture
def member(person: People, asked: ApprovalRequest) -> User:
    """Who is asked as one of a group."""
    made = person("member")
    made.groups.add(Group.objects.create(name="finance"))
    ApprovalRequest.objects.filter(pk=asked.pk).update(groups=["finance"])
    Addressee.objects.create(request=asked, kind="group", name="finance")
    return made


@pytest.fixture
def delegate(person: People, manager: User) -> User:
    """Who answers for the manager."""
    made = person("delegate")
    api.delegate(made, by=manager, until=clock.now() + timedelta(days=1), reason="away")
    return made


@pytest.fixture
def root(person: People) -> User:
    return person("root", is_superuser=True)


@pytest.mark.parametrize("who", ["manager", "member", "delegate", "operator", "asker", "root"])
def test_a_decision_is_shown_by_few_queries(
    who: str, asked: ApprovalRequest, browse: Browse, request: pytest.FixtureRequest
):
    client = browse(request.getfixturevalue(who))

    assert taken(client, inbox_address(asked)) <= MOST_QUERIES
    assert taken(client, address(asked)) <= MOST_QUERIES


@pytest.mark.parametrize("page", [inbox_address, address])
def test_as_few_whatever_stands_around_it(
    page: Callable[[Any], str], ask: Ask, manager: User, asker: User, person: People, browse: Browse
):
    client, alone = browse(manager), ask(quorum=2)
    few = taken(client, page(alone))

    for _ in range(3):
        done = ask()
        api.answer(done.pk, "approve", by=manager, facts_digest=done.facts_digest)
    for number in range(3):
        colleague = person(f"colleague{number}", PERMISSION)
        browse(colleague).get(page(alone))
        api.ask_requester(alone.pk, f"question {number}", by=colleague)
        api.reply(alone.pk, f"reply {number}", by=asker)
    api.answer(alone.pk, "approve", by=person("boss", PERMISSION), facts_digest=alone.facts_digest, comment="fine")
    run = lock_run(alone.run_id)
    for number in range(300):
        journal.record(run, "note.written", at=clock.now(), data={"number": number})
    run.store(*journal.FIELDS)

    assert taken(client, page(alone)) == few
    shown = text(client.get(page(alone)))
    assert [words for words in ("boss", "fine", "colleague0", "are not shown") if words not in shown] == []


def test_one_more_while_a_step_waits_for_a_provider(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    few = taken(client, inbox_address(asked))

    held = {"held_by": "bank", "held_for": "breaker", "held_since": clock.now(), "resend_at": clock.now()}
    StepRun.objects.create(run=asked.run, name="pay", state="READY", created_at=clock.now(), **held)

    assert taken(client, inbox_address(asked)) == few + 1 <= MOST_QUERIES


def test_what_became_of_an_answer_is_said_by_few_queries(ask: Ask, manager: User, browse: Browse):
    asked, _other = ask(), ask("Bo")
    api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest)
    client = browse(manager)

    assert taken(client, inbox_address(asked, "decided")) <= MOST_QUERIES
    assert taken(client, result(asked)) <= MOST_QUERIES


@pytest.mark.parametrize("accepts", ["text/html", "application/json"])
def test_the_health_is_told_by_few_queries(accepts: str, one_of_each: None, operator: User, browse: Browse):
    client = browse(operator)
    StepRun.objects.filter(state="WAITING_HUMAN").update(sent_at=None)

    with CaptureQueriesContext(connection) as queries:
        client.get(HEALTH, headers={"Accept": accepts})

    assert len(queries) <= MOST_QUERIES


@pytest.mark.parametrize("page", [inbox_address, address])
def test_who_has_changed_by_hand_what_is_asked_or_acts_for_that_person_is_offered_no_answer(
    page: Callable[[ApprovalRequest], str], asked: ApprovalRequest, manager: User, person: People, browse: Browse
):
    """P9: the page reads editors and givers once, and knows them as whoever answers is known."""
    aide, other = person("aide"), person("other", PERMISSION)
    api.delegate(aide, by=manager, until=clock.now() + timedelta(days=1), reason="away")
    people = (manager, aide, other)

    def offered() -> list[bool]:
        pages = [text(browse(User.objects.get(pk=one.pk)).get(page(asked))) for one in people]
        return ['value="approve"' in one for one in pages]

    assert offered() == [True, True, True]
    asked.editors.add(manager)
    assert offered() == [False, False, True]
