"""Workers in the console: who lives, who drains, who is silent, what each holds, and whether anything due is done."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import Client, override_settings

from durableflows import clock
from durableflows.core.keys import new_id, new_token
from durableflows.models import StepAttempt, Worker
from tests.console.test_dashboard import put, start
from tests.console.test_run_page import words_of
from tests.support.pages import HOSTILE, Browse, People, is_inert, text

pytestmark = pytest.mark.django_db

WORKERS = "/durableflows/console/workers/"


@pytest.fixture
def client(person: People, browse: Browse) -> Client:
    return browse(person("operator", "durableflows.operate_run"))


def worker(name: str, **values: Any) -> UUID:
    now = clock.now()
    given = {"host": "machine", "pid": 7, "started_at": now, "heartbeat_at": now, "queues": ["celery"], **values}
    return Worker.objects.create(boot_id=new_token(), name=name, knows=[["bonus", 1], ["bonus", 2]], **given).boot_id


def hold(name: str, by: UUID, *, minutes: float = 5, tenant: str = "") -> None:
    """A step that a worker has, and must end so many minutes from now."""
    step, now = start(name, tenant=tenant), clock.now()
    lease = {"lease_worker": by, "lease_token": new_token(), "must_end_by": now + timedelta(minutes=minutes)}
    put(step, state="RUNNING", **lease)
    StepAttempt.objects.create(id=new_id(), step=step, number=1, worker=by, pid=4711, started_at=now)


def test_each_worker_says_how_it_is_and_what_it_holds(client: Client):
    now = clock.now()
    hold("first", worker("alive", swept_at=now + timedelta(minutes=1)))  # "0 s ago", however long the test takes
    worker("leaves", draining_at=now)
    hold("late", worker(HOSTILE[:200], heartbeat_at=now - timedelta(minutes=3)), minutes=-2)
    hold("stray", new_token())
    worker("gone", stopped_at=now)

    response = client.get(WORKERS)

    page, words = text(response), words_of(text(response))
    for said in (
        "2 workers live, and what is due was looked for 0 s ago.",
        "alive lives",
        "leaves drains It was told to end",
        "No sign of life for more than 30 s.",
        "machine 7",
        "Bonus first prepare",
        "4711",
        "bonus 1, 2",
        "Held by workers that have ended",
    ):
        assert said in words
    held = {one.word: [step.attempt.step.run.business_key for step in one.held] for one in response.context["members"]}
    assert held == {"lives": ["first"], "drains": [], "silent": ["late"]}
    assert [one.is_late for one in response.context["members"][-1].held] == [True]
    assert [one.attempt.step.run.business_key for one in response.context["strays"]] == ["stray"]
    assert "gone" not in words
    assert is_inert(page)


def test_without_a_sweep_nothing_goes_on_by_itself_and_the_page_says_so(client: Client):
    assert "never looked for" in words_of(text(client.get(WORKERS)))
    assert "No worker has given a sign of life" in text(client.get(WORKERS))

    worker("w", swept_at=clock.now() - timedelta(minutes=10))

    assert "last looked for 10 minutes ago" in words_of(text(client.get(WORKERS)))


def test_who_acts_in_one_tenant_sees_its_steps_alone(person: People, browse: Browse):
    boot_id = worker("alive", swept_at=clock.now())
    hold("ours", boot_id, tenant="acme")
    hold("theirs", boot_id, tenant="other")
    client = browse(person("acme-ann", "durableflows.view_workflowrun"))

    with override_settings(DURABLEFLOWS={"TENANTS_OF": "tests.support.tenants.of"}):
        page = text(client.get(WORKERS))

    assert "ours" in page
    assert "theirs" not in page


def test_queries_do_not_grow_with_what_is_held(client: Client, django_assert_max_num_queries: Any):
    boot_id = worker("alive", swept_at=clock.now())
    for number in range(3):
        hold(f"run {number}", boot_id)

    with django_assert_max_num_queries(7):
        client.get(WORKERS)
