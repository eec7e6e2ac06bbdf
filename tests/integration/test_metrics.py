"""What monitors read is what the rows say, in a bounded number of queries (S2.27 to S2.34)."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Count
from django.test import Client
from django.test.utils import CaptureQueriesContext

from durableflows import Permanent, Transient, UnknownOutcome, api, health, metrics
from durableflows.management import monitors
from durableflows.metrics import prometheus
from durableflows.metrics.values import ALL
from durableflows.models import SideEffect, StepRun
from durableflows.testing import World
from tests.contract.source import ROOT
from tests.integration.test_command import said
from tests.support.examined import asking, done, in_doubt, parked
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow, raise_without_acting
from tests.support.refunds import person

pytestmark = pytest.mark.django_db(transaction=True)

Figures = dict[tuple[str, ...], float]


def figures() -> Figures:
    return {(one.kind.name.removeprefix("durableflows_"), *one.labels): one.value for one in metrics.collect()}


def test_what_stands_where_is_counted_with_the_age_of_the_oldest(world: World):
    done(world), asking(world), parked(world), in_doubt(world)
    world.clock.advance(minutes=2)

    seen = figures()

    states = {labels: value for labels, value in seen.items() if labels[0] == "runs"}
    assert sum(states.values()) == 3
    assert {state for _, _, state in states} == {"WAITING_HUMAN", "PARKED", "NEEDS_RECONCILIATION"}
    assert [value for labels, value in seen.items() if labels[0] == "runs_parked"] == [1]
    assert [value for labels, value in seen.items() if labels[0] == "requests"] == [1]
    oldest = [value for labels, value in seen.items() if labels[0] == "oldest_request_seconds"]
    assert oldest == [pytest.approx(120, abs=5)]
    assert [labels[2] for labels in seen if labels[0] == "effects"] == ["UNKNOWN"]
    assert [value >= 119 for labels, value in seen.items() if labels[0] == "oldest_doubt_seconds"] == [True]


def test_retries_repeats_ends_and_latency_are_of_the_last_minutes(world: World):
    provider = Provider(faults=[raise_without_acting(Transient("busy")), act_then_raise(UnknownOutcome("cut"))])
    run = api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    world.run_through()

    seen = figures()

    assert seen["runs_ended_lately", "pay", "SUCCEEDED"] == 1
    assert seen["retries_lately", "pay"] >= 1
    assert seen["sends_lately", "test", "first"] == 1
    assert seen["sends_lately", "test", "repeat"] == len(provider.sends) - 1 > 0
    lived = api.get(run.pk)
    assert lived.ended_at is not None
    seconds = (lived.ended_at - lived.created_at).total_seconds()
    assert seen["completion_seconds_lately", "pay", "0.95"] == pytest.approx(seconds)
    assert seen["events_lately", "pay", "run.ended"] == 1
    world.clock.advance(minutes=6)
    assert not [labels for labels in figures() if labels[0].endswith("_lately")]


def test_a_step_that_lost_its_worker_and_went_on_is_a_resume(world: World):
    provider = Provider()
    runs = [api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5}) for _ in range(2)]
    world.run_through()
    StepRun.objects.filter(run=runs[0], name="pay").update(lost_workers=1)

    assert figures()["resumed_lately", "pay", "done"] == 1


def test_a_contradiction_a_held_step_and_a_provider_left_alone_are_seen(world: World):
    provider = Provider()
    api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    world.run_through()
    SideEffect.objects.update(contradiction="a second receipt")
    api.pause_provider("test", reason="maintenance")
    api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    world.run_until_idle()

    seen = figures()

    assert seen["contradictions", "test"] == 1
    assert seen["provider_left_alone", "test", "paused"] == 1
    assert seen["steps_held", "test"] == 1


def test_the_number_of_queries_does_not_grow(world: World):
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as seen:
            metrics.collect()
        return len([one for one in seen if one["sql"].startswith("SELECT")])

    done(world), asking(world), parked(world), in_doubt(world)
    few = queries()
    provider = Provider(faults=[raise_without_acting(Permanent("no"))] * 3)
    for _ in range(6):
        api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    world.run_until_idle()

    assert queries() == few <= 15


def test_contradictions_are_found_by_an_index_however_long_the_ledger_is():
    """Monitors ask each few seconds, and strangers may ask for the health."""
    rows = SideEffect.objects.order_by().exclude(contradiction="").values("provider").annotate(count=Count("pk"))

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        plan = rows.explain()

    assert "durableflows_effect_doubled" in plan


def test_the_page_for_prometheus_is_read_by_its_own_parser(world: World):
    from prometheus_client.parser import text_string_to_metric_families

    asking(world)
    body, kind = prometheus.exposed(metrics.collect())

    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert kind.startswith("text/plain")
    assert set(families) == {kind.name for kind in ALL}
    assert [sample.value for sample in families["durableflows_requests"].samples] == [1]


def test_each_rule_of_the_example_reads_metrics_that_exist():
    text = Path(ROOT, "docs/operations/alerts.yml").read_text()
    named = set(re.findall(r"durableflows_\w+", text))

    assert named
    assert named <= {kind.name for kind in ALL}
    for name, label in re.findall(r"(durableflows_\w+)\{(\w+)", text):
        assert label in next(kind for kind in ALL if kind.name == name).labels


# Doors


TOKEN = {"Authorization": "Bearer monitor-secret"}


@pytest.fixture
def token(settings: Any) -> None:
    settings.DURABLEFLOWS = {**settings.DURABLEFLOWS, "MONITOR_TOKEN": "monitor-secret"}


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}, {"Authorization": "Basic monitor-secret"}],
)
def test_strangers_read_no_figure_and_one_word_of_the_health(token: None, headers: dict[str, str]):
    refused = Client().get("/durableflows/metrics", headers=headers)
    seen = Client().get("/durableflows/health/", headers=headers)

    assert (refused.status_code, b"durableflows_" in refused.content) == (401, False)
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    assert (seen.status_code, seen.json()) == (200, {"status": "ok"})


def test_without_a_token_set_no_token_opens():
    assert Client().get("/durableflows/metrics", headers={"Authorization": "Bearer "}).status_code == 401


def test_the_token_and_operators_read_all(token: None):
    client = Client()
    client.force_login(person("olga", "operate_run"))
    other = Client()
    other.force_login(person("mia", "answer_approval"))

    for answer in (Client().get("/durableflows/metrics", headers=TOKEN), client.get("/durableflows/metrics")):
        assert answer.status_code == 200
        assert b"durableflows_workers 0.0" in answer.content
        assert "no-cache" in answer.headers["Cache-Control"]
    assert other.get("/durableflows/metrics").status_code == 401
    assert set(other.get("/durableflows/health/").json()) == {"status"}
    assert "last_sweep" in client.get("/durableflows/health/").json()["checks"]
    page = client.get("/durableflows/health/", headers={"Accept": "text/html"})
    assert "All goes on by itself" in page.text
    assert "Last look for what is due" in page.text
    sentence = other.get("/durableflows/health/", headers={"Accept": "text/html"})
    assert "All goes on by itself" in sentence.text
    assert "Last look for what is due" not in sentence.text


@pytest.mark.parametrize("path", ["/durableflows/metrics", "/durableflows/health/"])
def test_monitors_only_read(path: str, token: None):
    assert Client().post(path, headers=TOKEN).status_code == 405


def test_without_the_library_metrics_say_how_to_get_it(token: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prometheus, "find_spec", lambda name: None)

    answer = Client().get("/durableflows/metrics", headers=TOKEN)

    assert (answer.status_code, "durableflows[metrics]" in answer.text) == (501, True)


# Health


def red(seen: health.Health) -> set[str]:
    return {check.name for check in seen.checks if check.is_red}


def test_nothing_under_way_needs_no_worker():
    assert health.examine().is_well


def test_runs_without_a_worker_are_red_and_the_verb_says_so(world: World):
    asking(world)

    seen = health.examine()

    assert red(seen) >= {"workers"}
    assert Client().get("/durableflows/health/").status_code == 503
    assert "Start a worker" in said("health", code=1)


def test_what_is_late_by_more_than_the_limit_is_red(world: World):
    provider = Provider(faults=[raise_without_acting(Transient("busy"))])
    api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    world.run_until_idle()
    step = StepRun.objects.get(state="RETRY_SCHEDULED")
    assert step.wake_at is not None

    world.clock.move_to(step.wake_at + timedelta(seconds=119))
    before = red(health.examine())
    world.clock.move_to(step.wake_at + timedelta(seconds=121))

    assert ("overdue" in before, "overdue" in red(health.examine())) == (False, True)


def test_a_step_that_no_worker_takes_and_a_contradiction_are_red(world: World):
    done(world)
    SideEffect.objects.update(contradiction="a second receipt")
    api.start(pay_workflow(Provider(), pay_effect(Provider())), {"amount": 5})
    StepRun.objects.filter(state="READY").update(sent_at=world.clock.now())
    assert "queue" not in red(health.examine())

    world.clock.advance(seconds=301)

    assert red(health.examine()) >= {"queue", "contradictions"}


def test_the_page_of_metrics_names_each_of_them():
    assert all(f"`{kind.name}`" in monitors.page() for kind in ALL)
