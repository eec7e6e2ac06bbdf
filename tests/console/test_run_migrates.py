"""A run is moved to a newer version from its page: where a way is declared, and after it was seen (P8, R36)."""

from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from durableflows import Facts, Run, Workflow, approval, migration, step
from durableflows.models import ApprovalRequest, RunEvent, WorkflowRun
from tests.console.test_run_actions import RUNS, order, page_of
from tests.console.test_run_page import words_of
from tests.support.bonus import PERMISSION, BonusState
from tests.support.pages import Browse, People, text

pytestmark = pytest.mark.django_db


class BonusOfToday(BonusState):
    """What it remembers since version 9."""

    campaign: str


@pytest.fixture
def client(person: People, browse: Browse) -> Client:
    return browse(person("operator", "durableflows.operate_run"))


def declare_newer(*, fails: bool = False) -> None:
    """Version 9, which calls the question otherwise and keeps a field more."""

    def facts(run: Run[BonusOfToday]) -> Facts:
        return Facts(binding={"amount": run.state.amount, "customer": run.state.customer})

    asked = approval(
        title="Bonus", shows=facts, permission=PERMISSION, expires=timedelta(days=2), approved="pay", rejected="pay"
    )

    class Newer(Workflow[BonusOfToday]):
        name, version, deadline = "bonus", 9, timedelta(days=9)

        @migration(from_version=1, steps={"ask": "sign_off"})
        def from_1(self, data: dict[str, Any]) -> dict[str, Any]:
            return {**data, "campaign": data["no such field" if fails else "customer"]}

        @step(start=True, to="sign_off")
        def prepare(self, run: Run[BonusOfToday]) -> None: ...

        sign_off = asked

        @step(end=True)
        def pay(self, run: Run[BonusOfToday]) -> None: ...


def version_of(request: ApprovalRequest) -> int:
    return WorkflowRun.objects.get(pk=request.run_id).version


def looked(client: Client, request: ApprovalRequest) -> str:
    """What the page says that the move would do."""
    return unescape(words_of(text(client.post(page_of(request.run_id, "migrate"), {"look": "yes", "version": "9"}))))


def test_it_is_offered_where_a_migration_leads_further(asked: ApprovalRequest, client: Client):
    assert page_of(asked.run_id, "migrate") not in text(client.get(f"{RUNS}{asked.run_id}/"))

    declare_newer()

    assert page_of(asked.run_id, "migrate") in text(client.get(f"{RUNS}{asked.run_id}/"))


def test_the_page_says_what_becomes_other_and_then_does_it(asked: ApprovalRequest, client: Client):
    declare_newer()

    words = looked(client, asked)
    assert "version: 1 -> 9" in words
    assert 'campaign: not there yet -> "Ada"' in words
    assert "ask, as sign_off" in words
    assert version_of(asked) == 1

    assert order(client, asked.run_id, "migrate", version="9").status_code == 302
    assert version_of(asked) == 9
    assert RunEvent.objects.get(run=asked.run_id, kind="run.migrated").actor_name == "operator"


def test_a_migration_that_fails_is_told_and_the_run_stays_as_it_was(asked: ApprovalRequest, client: Client):
    declare_newer(fails=True)

    words = looked(client, asked)

    assert "It would be refused." in words
    assert "from version 1 to 9 fails on this run's state: KeyError" in words
    assert version_of(asked) == 1


def test_who_comes_second_is_told_that_it_was_moved(asked: ApprovalRequest, client: Client):
    declare_newer()
    shown = client.post(page_of(asked.run_id, "migrate"), {"look": "yes", "version": "9"}).context["looked"].text
    send = {"version": "9", "do": "yes", "reason": "the deploy of today", "shown": shown}

    first, second = (client.post(page_of(asked.run_id, "migrate"), send) for _ in range(2))

    assert (first.status_code, second.status_code) == (302, 400)
    stands = "The run is under version 9 now, and no declared migration leads"
    assert f"{stands} to version 9." in words_of(text(second))
    assert f"{stands} further." in words_of(text(client.get(page_of(asked.run_id, "migrate"))))
    assert RunEvent.objects.filter(run=asked.run_id, kind="run.migrated").count() == 1


@pytest.mark.parametrize("version", ["1", "10", "x", ""])
def test_another_version_is_no_choice(version: str, asked: ApprovalRequest, client: Client):
    declare_newer()

    response = client.post(page_of(asked.run_id, "migrate"), {"look": "yes", "version": version})

    assert response.status_code == 400
    assert version_of(asked) == 1


def test_who_started_it_may_not(asked: ApprovalRequest, asker: User, browse: Browse):
    declare_newer()

    assert browse(asker).get(page_of(asked.run_id, "migrate")).status_code == 403
