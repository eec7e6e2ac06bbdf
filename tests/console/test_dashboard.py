"""The dashboard: figures that are those of the lists they lead to, charts of what has ended, and nobody else's runs."""

import re
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, RequestFactory, override_settings

from durableflows import Money, api, clock
from durableflows.models import StepRun, Worker, WorkflowRun
from durableflows.reading import ends, tiles
from durableflows.selectors import Sight
from durableflows.views.console import Dashboard
from tests.console.test_run_list import doubtful
from tests.support.pages import HOSTILE, Ask, Browse, People, is_inert, text

pytestmark = pytest.mark.django_db

DASHBOARD = "/durableflows/console/"
EVERYTHING = Sight(None, None)


@pytest.fixture
def client(person: People, browse: Browse) -> Client:
    return browse(person("operator", "durableflows.operate_run"))


def start(name: str, *, tenant: str = "") -> StepRun:
    """The first step of a new run."""
    run = api.start("bonus", {"amount": Money(100, "USD"), "customer": name}, key=name, version=1, tenant=tenant)
    return StepRun.objects.select_related("run").get(run=run)


def put(step: StepRun, **values: Any) -> None:
    StepRun.objects.filter(pk=step.pk).update(**values)


def end(name: str, state: str, took: timedelta, *, at: datetime, tenant: str = "") -> None:
    run = start(name, tenant=tenant).run
    WorkflowRun.objects.filter(pk=run.pk).update(state=state, ended_at=at, created_at=at - took)


@pytest.fixture
def one_of_each(ask: Ask) -> None:
    """A run under each figure, and one that was just sent."""
    now, late = clock.now(), clock.now() - timedelta(minutes=20)
    ask("Ada")
    doubtful(start("doubt").run)
    put(start("unsent"), sent_at=None, resend_at=late)
    put(start("queued"), sent_at=late, resend_at=now + timedelta(hours=1))
    put(start("held"), held_by="bank", held_for="breaker", held_since=late, sent_at=None)
    retried = {"state": "RETRY_SCHEDULED", "wake_at": now + timedelta(hours=1), "tries_since": late}
    put(start("retried"), **retried, error_class="requests.ReadTimeout")
    put(start("broken"), **retried, error_class=HOSTILE[:200])
    lease = {"state": "RUNNING", "lease_token": "0" * 32, "must_end_by": late}
    put(start("lease"), **lease)
    end("failed", "FAILED", timedelta(seconds=5), at=now)
    put(start("sent"), sent_at=now, resend_at=now + timedelta(hours=1))


def shown(page: str) -> dict[str, tuple[int, str]]:
    """Each figure that leads to a list: its words -> the figure, and where it leads."""
    found = re.findall(
        r'<a href="([^"]+show=[^"]+)"><span class="df-tile-count">([\d,]+)</span> <span class="df-tile-words">([^<]+)',
        page,
    )
    return {words: (int(count.replace(",", "")), unescape(address)) for address, count, words in found}


def test_each_figure_is_the_number_of_runs_of_the_list_that_it_leads_to(client: Client, one_of_each: None):
    page = text(client.get(DASHBOARD))

    found = shown(page)
    listed = {words: len(client.get(address).context["rows"]) for words, (_, address) in found.items()}
    assert {words: count for words, (count, _) in found.items()} == listed
    assert len(found) == len(tiles.SPECS)
    assert min(listed.values()) >= 1
    (error,) = re.findall(r'<a href="([^"]+)"><bdi>requests.ReadTimeout', page)
    assert [row.name for row in client.get(unescape(error)).context["rows"]] == ["retried"]
    assert [row.name for row in client.get(f"{found['Held at a provider'][1]}&provider=bank").context["rows"]] == [
        "held"
    ]
    assert page.count("Longer than the limit of") == 2  # in a queue, and not sent
    assert is_inert(page)


def test_ends_are_counted_by_hour_and_state_with_the_time_of_half_and_of_nearly_all():
    now = datetime.fromisoformat("2026-11-30T10:30:00+00:00")
    for number in range(20):
        end(f"run {number}", "SUCCEEDED", timedelta(seconds=number + 1), at=now - timedelta(minutes=number / 10))
    end("no", "FAILED", timedelta(days=2), at=now - timedelta(hours=23))
    end("long ago", "FAILED", timedelta(seconds=1), at=now - timedelta(hours=24))

    found = ends.lately(EVERYTHING, now)

    assert [(hour.start.hour, hour.ended) for hour in found.hours if hour.total] == [
        (11, {"FAILED": 1}),
        (10, {"SUCCEEDED": 20}),
    ]
    last = found.hours[-1]
    assert (last.half_within, last.most_within) == (timedelta(seconds=10), timedelta(seconds=19))
    assert (found.states, found.cut_at) == (["SUCCEEDED", "FAILED"], None)


def test_where_too_much_has_ended_the_newest_is_counted_and_the_page_says_since_when(person: People):
    now = clock.now()
    for number in range(4):
        end(f"run {number}", "SUCCEEDED", timedelta(seconds=1), at=now - timedelta(seconds=number))

    found = ends.lately(EVERYTHING, now, most=2)

    assert found.cut_at is not None
    assert sum(hour.total for hour in found.hours) == 3
    request = RequestFactory().get(DASHBOARD)
    request.user = person("viewer", "durableflows.view_workflowrun")
    assert "More than 2 runs have ended: only those since" in text(Dashboard.as_view(most=2)(request))


def test_nothing_is_said_to_be_nothing_and_no_worker_is_no_good_news(client: Client):
    page = text(client.get(DASHBOARD))

    assert {count for count, _ in shown(page).values()} == {0}
    assert "No run that you may see has ended in the last 24 hours." in page
    assert "What is due was never looked for" in page
    soon = clock.now() + timedelta(minutes=1)  # "0 s ago", however long the test takes
    Worker.objects.create(
        boot_id="0" * 32, name="w", host="h", pid=1, started_at=soon, heartbeat_at=soon, swept_at=soon
    )
    assert "What is due was looked for 0 s ago" in text(client.get(DASHBOARD))


def test_who_acts_in_one_tenant_sees_the_figures_of_no_other(person: People, browse: Browse):
    doubtful(start("ours", tenant="acme").run)
    for name in ("theirs", "theirs too"):
        doubtful(start(name, tenant="other").run)
        end(f"{name}, ended", "FAILED", timedelta(seconds=5), at=clock.now(), tenant="other")
    client = browse(person("acme-ann", "durableflows.view_workflowrun"))

    with override_settings(DURABLEFLOWS={"TENANTS_OF": "tests.support.tenants.of"}):
        page = text(client.get(DASHBOARD))

    assert (shown(page)["Not ended"][0], shown(page)["In doubt"][0], shown(page)["Failing now"][0]) == (1, 1, 0)
    assert "1 effect, the oldest for" in page
    assert "No run that you may see has ended" in page


def test_only_who_may_see_runs_of_others_comes_in(asker: User, browse: Browse, client: Client):
    assert Client().get(DASHBOARD)["Location"] == f"/login/?next={DASHBOARD}"
    assert browse(asker).get(DASHBOARD).status_code == 403
    assert DASHBOARD not in text(browse(asker).get("/durableflows/inbox/"))
    assert DASHBOARD in text(client.get("/durableflows/inbox/"))
    with override_settings(DURABLEFLOWS={"TENANTS_OF": "tests.support.tenants.lost"}):
        assert client.get(DASHBOARD).status_code == 403


def test_the_number_of_queries_does_not_grow(client: Client, one_of_each: None, django_assert_max_num_queries: Any):
    with django_assert_max_num_queries(14):
        assert client.get(DASHBOARD).status_code == 200
