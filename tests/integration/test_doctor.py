"""The doctor finds each promise that is broken in the rows, each thing that is late, and nothing in sound runs."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from durableflows import api, doctor
from durableflows.core import registry
from durableflows.doctor import Severity, findings, history
from durableflows.models import SideEffect, Worker, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World, virtual
from tests.support.examined import (
    STAGES,
    Stage,
    absent,
    accepted,
    asking,
    bad,
    cancelled,
    codes,
    done,
    ending,
    handed_over,
    in_doubt,
    parked,
    ready,
    retrying,
    running,
    sql,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db):
    with registry.isolated(), virtual() as world:
        yield world


@pytest.mark.parametrize("stage", STAGES)
def test_a_sound_run_has_nothing_broken_or_due(world: World, stage: Stage):
    run_id = stage(world)

    assert bad() == []
    assert bad(run_id) == []


STEP = "UPDATE durableflows_steprun SET {} WHERE run_id = %(run)s AND name = 'pay'"
FIRST = "UPDATE durableflows_steprun SET {} WHERE run_id = %(run)s AND name = 'assess'"
ASKS = "UPDATE durableflows_steprun SET {} WHERE run_id = %(run)s AND name = 'sign_off'"
RUN = "UPDATE durableflows_workflowrun SET {} WHERE id = %(run)s"
EFFECT = "UPDATE durableflows_sideeffect SET {} WHERE run_id = %(run)s"
REQUEST = "UPDATE durableflows_approvalrequest SET {} WHERE run_id = %(run)s"
EVENT = "UPDATE durableflows_runevent SET {} WHERE run_id = %(run)s AND sequence = 2"
NO_EVENTS = "DELETE FROM durableflows_runevent WHERE run_id = %(run)s"
LAST_EVENT = NO_EVENTS + " AND sequence = (SELECT event_sequence FROM durableflows_workflowrun WHERE id = %(run)s)"
NO_DOUBT_CHECK = "ALTER TABLE durableflows_sideeffect DROP CONSTRAINT durableflows_effect_doubt;"
NO_RECEIPT_CHECK = "ALTER TABLE durableflows_sideeffect DROP CONSTRAINT durableflows_effect_receipt;"
SECOND_ISSUE = """
    INSERT INTO durableflows_sideeffect
    SELECT (jsonb_populate_record(row, jsonb_build_object('id', %(new)s::text, 'issue', 2, 'key', 'other'))).*
    FROM durableflows_sideeffect row WHERE run_id = %(run)s
"""

BROKEN: list[tuple[str, Stage, str]] = [
    ("run-state", ready, RUN.format("state = 'WAITING'")),
    ("run-state", parked, RUN.format("parked_reason = ''")),
    ("run-state", asking, RUN.format("state = 'RUNNING'")),
    ("run-state", ending, RUN.format("state = 'NEEDS_RECONCILIATION'")),
    ("no-open-step", ready, FIRST.format("state = 'SUCCEEDED'")),
    ("no-open-step", ready, NO_EVENTS + "; DELETE FROM durableflows_steprun WHERE run_id = %(run)s"),
    ("end-state", cancelled, RUN.format("state = 'SUCCEEDED'")),
    ("open-step-in-ended-run", done, STEP.format("state = 'READY'")),
    ("open-request-in-ended-run", asking, RUN.format("state = 'FAILED', ended_at = now()")),
    ("open-effect-in-ended-run", done, EFFECT.format("state = 'ACCEPTED'")),
    ("open-effect-in-ended-run", in_doubt, RUN.format("state = 'CANCELLED', ended_at = now()")),
    ("open-effect-in-ended-step", in_doubt, STEP.format("state = 'SUCCEEDED'")),
    ("dispatched-without-lease", in_doubt, EFFECT.format("state = 'DISPATCHED'")),
    ("no-next-thing", ready, FIRST.format("resend_at = NULL")),
    ("no-next-thing", retrying, STEP.format("wake_at = NULL")),
    ("no-next-thing", in_doubt, STEP.format("wake_at = NULL")),
    ("no-next-thing", accepted, STEP.format("wake_at = NULL")),
    ("no-request", asking, REQUEST.format("state = 'CLOSED'")),
    ("request-without-step", asking, ASKS.format("state = 'READY', resend_at = now()")),
    ("confirmed-without-receipt", done, EFFECT.format("receipt = 'null'::jsonb")),
    ("confirmed-without-receipt", done, NO_RECEIPT_CHECK + EFFECT.format("receipt = NULL")),
    ("doubt-without-date", in_doubt, NO_DOUBT_CHECK + EFFECT.format("in_doubt_since = NULL")),
    ("doubt-forgotten", in_doubt, EFFECT.format("state = 'PLANNED'")),
    ("operation-twice", done, SECOND_ISSUE),
    ("operation-twice", in_doubt, SECOND_ISSUE),
    ("arguments-changed", in_doubt, EFFECT.format("arguments = jsonb_set(arguments, '{amount}', '500')")),
    ("arguments-changed", in_doubt, EFFECT.format("arguments = '[1]'::jsonb")),
    ("state-digest", ready, RUN.format("data = jsonb_set(data, '{amount}', '500')")),
    ("state-digest", done, RUN.format("checkpoint_sequence = checkpoint_sequence + 1")),
    ("event-chain", done, EVENT.format("kind = 'step.succeeded'")),
    ("event-chain", done, EVENT.format("data = '{}'::jsonb")),
    ("event-chain", done, EVENT.format("actor_name = 'somebody'")),
    ("event-chain", done, EVENT.format("digest = repeat('0', 64)")),
    ("event-chain", done, EVENT.format("previous_digest = repeat('0', 64)")),
    ("event-chain", done, NO_EVENTS + " AND sequence = 2"),
    ("event-chain", done, NO_EVENTS + " AND sequence = 1"),
    ("event-chain", done, LAST_EVENT),
    ("event-chain", ready, NO_EVENTS),
]  # fmt: skip


@pytest.mark.parametrize(("code", "stage", "breaks"), BROKEN)
def test_each_broken_promise_is_found(world: World, code: str, stage: Stage, breaks: str):
    with registry.isolated():
        bystander = done(world)
    run_id = stage(world)

    sql(breaks, run=run_id, new=str(uuid4()))

    found = [one for one in doctor.examine() if one.code == code]
    assert [one.run_id for one in found] == [run_id]
    assert found[0].severity is Severity.BROKEN
    assert found[0].cure
    assert code in codes(run_id)
    assert bad(bystander) == []


LATE: list[tuple[str, Stage, timedelta]] = [
    ("unsent", ready, timedelta(minutes=2)),
    ("lease-overdue", running, timedelta(minutes=3)),
    ("retry-overdue", retrying, timedelta(minutes=5)),
    ("look-overdue", in_doubt, timedelta(minutes=5)),
    ("look-overdue", accepted, timedelta(minutes=5)),
    ("request-overdue", asking, timedelta(days=4)),
    ("deadline-overdue", parked, timedelta(days=15)),
    ("audit-due", absent, timedelta(days=2)),
]


@pytest.mark.parametrize(("code", "stage", "later"), LATE)
def test_what_is_late_is_due(world: World, code: str, stage: Stage, later: timedelta):
    run_id = stage(world)
    world.clock.advance(seconds=later.total_seconds())

    found = [one for one in doctor.examine() if one.code == code]

    assert [one.run_id for one in found] == [run_id]
    assert found[0].severity is Severity.DUE


def test_an_end_that_nobody_confirms_is_due(world: World):
    run_id = ending(world)
    sql(EFFECT.format("state = 'CONFIRMED', receipt = '{\"id\": \"x\"}'"), run=run_id)
    world.clock.advance(minutes=5)

    assert "end-overdue" in codes(run_id)


def ticker(world: World, *, age: timedelta, swept: timedelta | None = timedelta(0)) -> Worker:
    now = world.clock.now()
    return Worker.objects.create(
        boot_id=uuid4(), name="w", host="h", pid=1, started_at=now - age, heartbeat_at=now,
        swept_at=None if swept is None else now - swept,
    )  # fmt: skip


def test_what_a_living_ticker_does_not_get_done_is_stuck(world: World):
    """S2.32."""
    run_id = retrying(world)
    world.clock.advance(hours=1)
    ticker(world, age=timedelta(hours=1))

    assert [one.run_id for one in doctor.examine() if one.code == "stuck"] == [run_id]
    assert "retry-overdue" not in codes()


def test_a_ticker_that_has_just_started_is_given_time(world: World):
    retrying(world)
    world.clock.advance(hours=1)
    ticker(world, age=timedelta(minutes=1))

    assert "stuck" not in codes()
    assert "retry-overdue" in codes()


def test_runs_without_a_living_ticker_need_attention(world: World):
    assert codes() == []
    ready(world)
    assert codes() == ["no-ticker"]

    ticker(world, age=timedelta(hours=1), swept=timedelta(hours=1))
    assert codes() == ["ticker-stalled"]
    ticker(world, age=timedelta(hours=1))
    assert codes() == []
    world.clock.advance(minutes=1)
    assert "no-ticker" in codes()


@pytest.mark.parametrize(
    ("code", "stage", "breaks"),
    [
        ("parked", parked, ""),
        ("needs-person", handed_over, ""),
        ("needs-person", absent, ""),
        ("contradiction", done, EFFECT.format("contradiction = 'a second receipt'")),
        ("unclaimed", ready, FIRST.format("sends = 5")),
    ],
)
def test_what_a_person_should_see_needs_attention(world: World, code: str, stage: Stage, breaks: str):
    run_id = stage(world)
    if breaks:
        sql(breaks, run=run_id)

    found = [one for one in doctor.examine() if one.code == code]

    assert [(one.run_id, one.severity) for one in found] == [(run_id, Severity.ATTENTION)]


def test_a_key_that_was_taken_away_is_named(world: World):
    run_id = ready(world)
    key_id = WorkflowRun.objects.get(pk=run_id).data_key_id

    with override_settings(DURABLEFLOWS={"STATE_KEYS": {"new": "secret"}}):
        found = [one for one in doctor.examine() if one.severity is Severity.BROKEN]

    text = f"the state is sealed under key {key_id!r}, which STATE_KEYS no longer has"
    assert [(one.code, one.text) for one in found] == [("key-gone", text)]


def test_what_is_broken_comes_first(world: World):
    parked(world)
    with registry.isolated():
        run_id = retrying(world)
    with registry.isolated():
        sql(RUN.format("data_digest = ''"), run=ready(world))
    world.clock.advance(minutes=30)

    severities = [one.severity for one in doctor.examine()]

    assert severities == sorted(severities, key=list(Severity).index)
    assert set(severities) == set(Severity)
    assert {one.run_id for one in doctor.examine(run_id)} == {run_id, None}


def test_a_long_list_ends_and_says_so(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(findings, "FINDINGS_LISTED", 2)
    for _ in range(4):
        with registry.isolated():
            parked(world)

    texts = [one.text for one in doctor.examine() if one.code == "parked"]

    assert len(texts) == 3
    assert texts[-1] == "and more: only the first 2 are listed"


def test_the_number_of_queries_grows_by_batches_only(world: World, monkeypatch: pytest.MonkeyPatch):
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            doctor.examine()
        return len(queries)

    parked(world)
    one = count()
    for _ in range(6):
        with registry.isolated():
            done(world)
    assert count() == one
    monkeypatch.setattr(history, "BATCH", 3)
    sql("UPDATE durableflows_runevent SET kind = 'x' WHERE sequence = 1")

    assert count() == one + 2 * 2
    assert codes().count("event-chain") == 7


@pytest.mark.django_db(transaction=True)
def test_one_moment_is_examined_outside_of_a_transaction(world: World):
    """A commit between two reads must not look like a fault."""
    run_id = done(world)

    assert bad() == []
    assert bad(run_id) == []


def test_every_code_has_a_case():
    tested = {code for code, *_ in (*BROKEN, *LATE)}
    others = {
        "end-overdue",
        "budget-count",  # test_budgets.py
        "cleanup-beside-main-path",  # this and the next: test_cleanup_doctor.py
        "sent-after-main-path",
        "cleanup-overdue",
        "cleanup-not-done",
        *("event-unmatched", "event-unreadable", "event-overdue"),  # test_provider_events.py
        *("provider-open", "provider-paused", "probe-overdue"),  # test_breakers.py
        "undo-astray",  # this and the next two: test_undo_doctor.py
        "undone-twice",
        "not-undone",
        "inherited",  # this and the next: test_abandon.py
        "inherited-look-overdue",
        "timer-overdue",  # this and the next: test_doctor_waits.py
        "crossing-overdue",
        "stuck",
        "parked",
        "needs-person",
        *("notice-overdue", "notice-failing"),  # test_notices.py
        "unanswerable",  # test_unanswerable.py
        "contradiction",
        "unclaimed",
        "unknown-release",
        "no-ticker",
        "ticker-stalled",
        *("job-late", "waits-long"),  # test_housekeeping.py
        "key-gone",
        "rolled-back",  # test_verify.py, with those that `verify` alone finds
    }

    assert tested | others | findings.VERIFY_ONLY == set(findings.KNOWN)


def test_a_release_that_no_living_worker_has_is_named_before_its_runs_are_parked(world: World):
    ready(world)
    ticker(world, age=timedelta(hours=1))
    (run,) = WorkflowRun.objects.all()

    told = []
    for knows in ([[run.workflow, run.version]], [["other", 1], [run.workflow, 7]], []):
        Worker.objects.update(knows=knows)
        told.append("unknown-release" in codes())

    assert told == [False, True, False]


def test_a_verdict_about_an_effect_without_lookup_leaves_no_audit(world: World):
    run_id = handed_over(world)
    row = SideEffect.objects.get(run=run_id)

    api.resolve_effect(row.pk, "did_not_happen", reason="called them", row_version=row.row_version)

    assert SideEffect.objects.get(pk=row.pk).audit_at is None
    assert WorkflowRun.objects.get(pk=run_id).alert == ""
    assert sweeps.audit_absent(world.clock.now() + timedelta(days=9)) == 0
