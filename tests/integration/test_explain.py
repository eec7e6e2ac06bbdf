"""A run in sentences: each story is told from its rows, in words, with what is certain, unknown, next and safe."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from durableflows import NeedsHuman, Transient, UnknownOutcome, api, claims, explain, explain_rows, journal, leases
from durableflows.core import registry
from durableflows.explain_events import say
from durableflows.explain_words import Fact, moment, plain, reference_of
from durableflows.models import SideEffect, StepRun, Worker, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import Boundary, Crash, World, crash_at, open_request, virtual
from tests.support.flows import Provider, act_then_raise, answer_pending, pay_effect, pay_workflow, raise_without_acting

pytestmark = pytest.mark.django_db

UNKEYED: dict[str, object] = {"key_window": None}


@pytest.fixture
def world(db):
    with registry.isolated(), virtual() as world:
        yield world


@pytest.fixture
def manager(django_user_model):
    return django_user_model.objects.create_superuser("anna", password="x")


def started(world: World, provider: Provider, *, effect: dict[str, object] | None = None, **options) -> WorkflowRun:
    workflow = pay_workflow(provider, pay_effect(provider, **(effect or {})), **options)  # type: ignore[arg-type]
    run = api.start(workflow, {"amount": 5}, key="order-7")
    world.run_until_idle()
    return run


def told(run: WorkflowRun) -> explain.Explanation:
    return api.explain(run.pk)


def texts(explanation: explain.Explanation, kind: str) -> list[str]:
    return [line.text for line in explanation.lines if line.kind == kind]


def test_a_finished_run_names_each_step_and_the_reference_of_the_provider(world: World):
    run = started(world, Provider())

    story = told(run)

    assert story.sentence == "Done at 09:00"
    assert [line.text for line in story.lines][:3] == [
        "Started: pay, version 1, order-7",
        f"assess began, attempt 1, on {leases.worker_name()}",
        "assess is done; next: pay",
    ]
    assert texts(story, "certain") == ["test.pay is confirmed; test calls it pay_1"]
    assert "test.pay was sent to test" in texts(story, "done")
    assert "Note: paid" in texts(story, "note")
    assert story.lines[-1].text == "The run ended: done"
    assert (story.next, story.next_at, story.safe, story.ended) == ("", None, (), True)


def test_lines_are_oldest_first(world: World):
    run = started(world, Provider(faults=[raise_without_acting(Transient("503"))]))
    world.run_through()

    moments = [line.at for line in told(run).lines]

    assert moments == sorted(moments)
    assert len(set(moments)) > 1


def test_a_request_says_since_when_and_what_happens_by_itself(world: World, manager):
    run = api.start(pay_workflow(Provider()), {"amount": 900, "ask": True})
    world.run_until_idle()

    first = told(run)
    world.clock.advance(days=3, seconds=1)
    world.run_until_idle()
    last = told(run)

    assert first.sentence == "Waiting for a decision since 09:00; then others are asked, on Thu 8 Jan 09:00"
    assert (first.next, first.next_at) == ("others are asked", world.clock.now() - timedelta(seconds=1))
    assert first.safe == ("answer", "cancel", "pause")
    assert "A decision was asked for: Pay 900 to Ada" in texts(first, "waiting")
    assert last.sentence == "Waiting for a decision since Mon 5 Jan 09:00; rejected by itself on Sun 11 Jan 09:00"
    assert last.next == "the request expires and is rejected"


def test_an_answer_is_told_with_its_person_and_comment(world: World, manager):
    """S3.46."""
    run = api.start(pay_workflow(Provider()), {"amount": 900, "ask": True})
    world.run_until_idle()
    request = open_request(run.pk)

    api.answer(request.pk, "approve", by=manager, facts_digest=request.facts_digest, comment="<b>fine</b>")

    assert "Approved by anna: <b>fine</b>" in texts(told(run), "done")


def test_a_request_that_nobody_answers_is_told(world: World):
    run = api.start(pay_workflow(Provider()), {"amount": 900, "ask": True})
    for _ in range(3):
        world.run_until_idle()
        world.clock.advance(days=3, seconds=1)

    assert "Nobody answered in time: the request was rejected by itself" in texts(told(run), "problem")


def test_a_retry_says_why_and_when(world: World):
    """S3.45."""
    run = started(world, Provider(faults=[raise_without_acting(Transient("busy", retry_after_seconds=120))]))

    story = told(run)

    assert story.sentence.startswith("pay did not work (transient: busy")
    assert story.next == "pay is tried again"
    assert story.next_at == StepRun.objects.get(run=run, name="pay").wake_at
    assert story.next_at is not None
    assert story.next_at >= world.clock.now() + timedelta(seconds=120)
    assert story.safe == ("cancel", "pause", "retry")
    assert any(
        text.startswith("pay did not work: transient: busy; it is tried again at") for text in texts(story, "problem")
    )
    assert texts(story, "certain") == ["test.pay was not done: not done"]


def test_a_lost_answer_is_unknown_until_the_lookup_finds_it(world: World):
    """S3.33."""
    run = started(world, Provider(faults=[act_then_raise(UnknownOutcome("timed out"))], keyed=False), effect=UNKEYED)

    before = told(run)
    world.run_through()
    after = told(run)

    assert before.sentence.startswith("Checking what happened: test.pay may have happened")
    assert "test.pay is in doubt, it may have happened: its answer was lost" in texts(before, "unknown")
    assert before.next == "pay is looked at again"
    assert before.next_at is not None
    assert before.safe == ("cancel", "pause", "resolve")
    assert "test.pay is confirmed when it was looked up; test calls it pay_1" in texts(after, "certain")
    assert after.ended


def test_what_was_not_found_is_certain_and_a_person_decides(world: World):
    faults = [raise_without_acting(UnknownOutcome("timed out"))]
    run = started(world, Provider(faults=faults, keyed=False), effect=UNKEYED)
    world.run_through()

    story = told(run)

    assert "test.pay was looked up and not found: it did not happen" in texts(story, "certain")
    assert story.sentence.startswith("A person must find out")
    assert story.next.startswith("a person decides: a lookup says that test.pay did not happen")
    assert story.next_at is None
    assert story.safe == ("cancel", "pause", "resolve")


def test_a_verdict_is_told_with_its_reason(world: World, manager):
    faults = [act_then_raise(UnknownOutcome("timed out"))]
    run = started(world, Provider(faults=faults), effect=UNKEYED | {"with_lookup": False})
    row = SideEffect.objects.get(run=run)

    api.resolve_effect(
        row.pk, "happened", by=manager, reason="seen in the dashboard", row_version=row.row_version, receipt={"id": "x"}
    )

    assert "anna says that test.pay happened: seen in the dashboard" in texts(told(run), "certain")


def test_what_the_provider_is_not_done_with_waits(world: World):
    run = started(world, Provider(faults=[answer_pending]))

    story = told(run)

    assert story.sentence.startswith("Waiting: ")
    assert "test.pay was accepted by the provider, which is not done with it" in texts(story, "waiting")
    assert story.next == "pay: the provider is asked"


def test_a_step_that_live_workers_do_not_have_says_so(world: World):
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    row = {"name": "old", "host": "h", "pid": 1, "started_at": world.clock.now(), "heartbeat_at": world.clock.now()}
    Worker.objects.create(boot_id=uuid4(), knows=[["other", 1]], **row)

    assert told(run).sentence == (
        f"assess waits for a worker that has {run.workflow} version 1: start those that run with this code"
    )
    Worker.objects.create(boot_id=uuid4(), knows=[[run.workflow, 1]], **row)
    assert told(run).sentence == "assess waits for a worker since 09:00"


def test_work_in_progress_says_by_when_the_worker_must_end(world: World):
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    step = StepRun.objects.get(run=run)
    waiting = told(run)
    claims.claim(run.pk, step.pk, task_id="t", pid=1)

    story = told(run)

    assert waiting.sentence == "assess waits for a worker since 09:00"
    assert waiting.next == "assess is sent again if no worker has taken it"
    assert story.sentence == "Working on assess since 09:00"
    assert (story.next, story.next_at) == (
        "the worker must end assess by then",
        StepRun.objects.get(run=run).must_end_by,
    )


def test_a_lost_worker_leaves_doubt_that_is_told_and_looked_at(world: World):
    """P10, R05: the step that is freed has a time at which somebody looks at it."""
    provider = Provider(keyed=False)
    run = api.start(pay_workflow(provider, pay_effect(provider, key_window=None)), {"amount": 5})
    with crash_at(Boundary.EFFECT_AFTER_RESERVE), pytest.raises(Crash):
        world.run_until_idle()
    under_way = told(run)
    world.clock.advance(hours=1)
    sweeps.sweep(may_free_stale=False)

    story = told(run)
    world.run_until_idle()

    assert "test.pay was sent to test; its answer is not here yet" in texts(under_way, "unknown")
    assert "pay lost its worker: it did not end in its time" in texts(story, "problem")
    assert "test.pay is in doubt, it may have happened: it did not end in its time" in texts(story, "unknown")
    assert told(run).sentence.startswith("A person must find out")


def test_a_parked_run_says_why_and_who_can_help(world: World):
    run = started(world, Provider(faults=[raise_without_acting(NeedsHuman("the key expired"))]))

    story = told(run)

    assert story.sentence == "Needs attention, needs a person: pay: the key expired"
    assert story.next == "a person lets it go on; else the deadline ends the run"
    assert story.next_at == run.deadline_at
    assert story.safe == ("cancel", "retry")
    assert texts(story, "problem") == ["Stopped until somebody lets it go on: pay: the key expired"]


def test_a_cancel_names_its_person_and_what_it_waits_for(world: World, manager):
    faults = [act_then_raise(UnknownOutcome("timed out"))]
    run = started(world, Provider(faults=faults), effect=UNKEYED | {"with_lookup": False})

    api.cancel(run.pk, by=manager, reason="changed my mind")
    ending = told(run)

    assert ending.sentence == "Ending (cancel by anna): changed my mind; first test.pay must be settled"
    assert "Cancel was asked for by anna: changed my mind" in texts(ending, "note")
    assert ending.safe == ("resolve",)


def test_a_cancelled_run_names_its_person(world: World, manager):
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    api.cancel(run.pk, by=manager, reason="changed my mind")

    story = told(run)

    assert story.sentence == "Cancelled by anna at 09:00: changed my mind"
    assert story.ended


@pytest.mark.parametrize("length", [0, 450])
def test_the_number_of_queries_does_not_grow(world: World, length: int):
    run = WorkflowRun.objects.get(pk=started(world, Provider()).pk)
    for number in range(length):
        journal.record(run, "run.note", at=world.clock.now(), data={"text": f"note {number}"})
    run.store(*journal.FIELDS)

    with CaptureQueriesContext(connection) as queries:
        story = explain.explain_run(run)

    assert len(queries) == 1
    assert len(story.lines) <= explain_rows.EVENTS_SHOWN + 1
    if length:
        hidden = run.event_sequence - explain_rows.EVENTS_SHOWN
        assert story.lines[0].text == f"{hidden} earlier events are not shown"


def test_hostile_text_stays_one_line_of_inert_text(world: World):
    hostile = "\x1b[2J\r\n<script>alert(1)</script>\u202eevil{step}{0}%s" + "x" * 5000
    run = started(world, Provider(faults=[raise_without_acting(NeedsHuman(hostile))]))

    story = told(run)

    for text in (story.sentence, story.next, *(line.text for line in story.lines)):
        assert "\x1b" not in text
        assert "\n" not in text
        assert "\u202e" not in text
        assert len(text) < 1000
    assert "⟦U+001B⟧[2J <script>alert(1)</script>⟦U+202E⟧evil{step}{0}%s" in story.sentence


def test_an_event_of_a_later_release_is_named(world: World):
    run = WorkflowRun.objects.get(pk=started(world, Provider()).pk)
    journal.record(run, "child.joined_late", at=world.clock.now(), data={"x": [1]})
    run.store(*journal.FIELDS)

    assert told(run).lines[-1].text == "child joined late"


def test_times_are_those_of_the_reader():
    now = datetime(2026, 12, 1, 10, 0, tzinfo=UTC)

    assert moment(now, now) == "10:00"
    assert moment(datetime(2026, 12, 2, 10, 40, tzinfo=UTC), now) == "Wed 2 Dec 10:40"
    assert moment(datetime(2027, 1, 2, 10, 40, tzinfo=UTC), now) == "Sat 2 Jan 2027 10:40"
    with timezone.override("Asia/Tokyo"):
        assert moment(datetime(2026, 12, 1, 15, 0, tzinfo=UTC), now) == "Wed 2 Dec 00:00"


@pytest.mark.parametrize(
    ("receipt", "reference"),
    [
        ({"id": "re_1"}, "re_1"),
        ({"message_id": 7}, "7"),
        ({"id": {"a": 1}}, ""),
        ({"id": ""}, ""),
        ("re_1", ""),
        (None, ""),
    ],
)
def test_a_receipt_names_its_reference(receipt: object, reference: str):
    assert reference_of(receipt) == reference  # type: ignore[arg-type]


def test_plain_text_says_that_it_was_cut():
    assert plain("ab\tc") == "ab c"
    assert plain("x" * 20, 10) == "x" * 9 + "…"
    assert plain(uuid4())


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("shop.approve_order", "Nobody answered in time; now asked of those with the right: shop.approve_order"),
        ("carla", "Nobody answered in time; now asked of carla"),
        ("members of board or ada", "Nobody answered in time; now asked of members of board or ada"),
    ],
)
def test_who_is_asked_next_is_a_right_a_group_or_somebody(asked: str, words: str):
    fact = Fact("approval.escalated", "sign_off", "", {"asked": asked}, timezone.now())

    assert say(fact) == (words, "waiting")
