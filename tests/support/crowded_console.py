"""A console with a million runs, and what its pages take: for `python -m tests.measure_console`.

The rows are made by SQL from a few that the engine wrote: most have ended, one in a hundred waits, is parked, is in
doubt or is tried again, and one in fifty thousand is of a rare workflow, tenant, provider and error.
"""

import time
from collections.abc import Iterator
from uuid import UUID

from django.contrib.auth.models import Permission, User
from django.db import connection, models
from django.test import Client

from durableflows import Money, api
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepAttempt, StepRun, WorkflowRun
from durableflows.reading.runs import MEANS
from durableflows.reading.window import EPOCH
from durableflows.runner import run_step
from tests.support.bonus import PERMISSION, declare
from tests.support.measured_pages import Taken, a_database, look_at

RUNS, CONSOLE = "/durableflows/runs/", "/durableflows/console/"
ADMIN = "/admin/durableflows/"
MOST_MILLISECONDS, TURNS = 1000.0, 5


def measured(runs: int, events: int, long: int) -> Iterator[Taken]:
    """Make a database with so many runs, and look at each page of the console as an operator."""
    with a_database():
        client = crowd(runs, events, long)
        yield from look_at(pages(), client, turns=TURNS, most_milliseconds=MOST_MILLISECONDS)


def crowd(runs: int, events: int, long: int) -> Client:
    """All of it; the person may operate every run."""
    declare()
    operator, asker = User.objects.create_user("operator", is_staff=True), User.objects.create_user("asker")
    operator.user_permissions.add(Permission.objects.get(codename="operate_run"))
    asker.user_permissions.add(Permission.objects.get(codename=PERMISSION.partition(".")[2]))
    run = api.start("bonus", {"amount": Money(60000, "USD"), "customer": "Ada"}, by=asker, subject=asker, version=1)
    for name in ("prepare", "ask"):
        run_step(run.pk, StepRun.objects.get(run=run, name=name).pk)
    _effect(run)
    _copy(run.pk, runs, events)
    _vary()
    _ask()
    _lengthen(run.pk, long)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    client = Client()
    client.force_login(operator)
    return client


def _effect(run: WorkflowRun) -> None:
    SideEffect.objects.create(
        run=run,
        step=StepRun.objects.filter(run=run).latest("id"),
        step_name="pay",
        operation="bonus.give",
        key="key",
        effect="bonus.give",
        provider="bank",
        request_digest="0" * 64,
        state="CONFIRMED",
        receipt={"id": "b_1"},
        created_at=run.created_at,
    )


Made = tuple[type[models.Model], dict[str, str], str]
"""Rows of a table that are made from one: column -> SQL of its value, and the row that the others are copied from."""


def _copy(run_id: UUID, count: int, events: int) -> None:
    """Runs a second apart, each with its steps, tries, effect and events."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # without looking up each foreign key
        for model, changed, where in _made(run_id, events):
            columns = [str(field.column) for field in model._meta.concrete_fields]
            values = ", ".join(changed.get(column, f"old.{column}") for column in columns)
            table = model._meta.db_table
            cursor.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values}"
                f" FROM (SELECT * FROM {table} WHERE {where}) old CROSS JOIN generate_series(1, {count}) AS made (n)"
            )
        cursor.execute("SET session_replication_role = origin")


def _made(run_id: UUID, events: int) -> Iterator[Made]:
    """Ids sort by time, as UUIDv7 do; one moment for all tables, since rows of a run name each other by it."""
    made_at = int(time.time())
    stamp = f"lpad(to_hex(({made_at} - n)::bigint * 1000), 12, '0')"
    new_id = f"({stamp} || '7' || substr(md5('{{0}}' || n::text), 1, 19))::uuid"
    at, run_of = f"to_timestamp({made_at} - n)", new_id.format("run")
    yield WorkflowRun, _run_columns(run_of, at), f"id = '{run_id}'"
    for step in StepRun.objects.filter(run=run_id).order_by("id"):
        step_id = new_id.format(step.name)
        ended = {"state": "'SUCCEEDED'", "came_from_id": "NULL", "ended_at": at, "resend_at": "NULL", "wake_at": "NULL"}
        yield StepRun, {"id": step_id, "run_id": run_of, **ended}, f"id = '{step.pk}'"
        attempt = {"id": new_id.format(f"try {step.name}"), "step_id": step_id, "started_at": at}
        yield StepAttempt, attempt, f"step_id = '{step.pk}'"
    effect = {"id": new_id.format("effect"), "run_id": run_of, "step_id": new_id.format("ask"), "key": "'key-' || n"}
    yield SideEffect, effect, f"run_id = '{run_id}'"
    for number in range(1, events + 1):
        event = {"id": new_id.format(f"event {number}"), "run_id": run_of, "sequence": str(number), "step_id": "NULL"}
        yield RunEvent, event, f"run_id = '{run_id}' AND sequence = 1"


def _run_columns(run_of: str, at: str) -> dict[str, str]:
    return {
        "id": run_of,
        "business_key": "'bonus-' || n",
        "subject_id": "(n % 100000)::text",
        "state": "'SUCCEEDED'",
        "created_at": at,
        "changed_at": at,
        "ended_at": f"{at} + interval '1 second'",
    }


def _vary() -> None:
    """A tenth failed; one in a hundred goes on, in each way that has a view of its own; a few are of something rare."""
    runs, steps, effects, tries = (one._meta.db_table for one in (WorkflowRun, StepRun, SideEffect, StepAttempt))
    number = "substr(business_key, 7)::int"
    open_one = "ended_at = NULL, deadline_at = now() + interval '9 days'"
    timed_out = "error_class = 'requests.exceptions.ReadTimeout'"
    failed = f"state = 'FAILED', {timed_out}"
    parked = f"state = 'PARKED', {open_one}, parked_reason = 'error in our code', parked_detail = 'KeyError'"
    retried = f"state = 'RETRY_SCHEDULED', wake_at = now() + interval '1 hour', ended_at = NULL, {timed_out}"
    ready = "state = 'READY', ended_at = NULL, resend_at = now() + interval '1 hour'"
    held = f"{ready}, sent_at = NULL, held_by = 'bank', held_for = 'breaker', held_since = now()"
    lease = "lease_worker = gen_random_uuid(), lease_token = gen_random_uuid(), ended_at = NULL"
    leased = f"state = 'RUNNING', must_end_by = now() + interval '1 minute', {lease}"
    some = f"SELECT id FROM {runs} WHERE business_key LIKE 'bonus-%' AND {number} % "
    with connection.cursor() as cursor:
        for statement in (
            f"UPDATE {runs} SET {failed} WHERE business_key LIKE 'bonus-%' AND {number} % 10 = 1",
            f"UPDATE {runs} SET state = 'WAITING_HUMAN', {open_one} WHERE id IN ({some} 100 = 2)",
            f"UPDATE {runs} SET {parked} WHERE id IN ({some} 1000 = 3)",
            f"UPDATE {runs} SET state = 'RUNNING', {open_one} WHERE id IN ({some} 1000 = 4)",
            f"UPDATE {runs} SET workflow = 'rare', error_class = 'rare.Error' WHERE id IN ({some} 50000 = 5)",
            f"UPDATE {steps} SET {retried} WHERE name = 'ask' AND run_id IN ({some} 1000 = 4)",
            f"UPDATE {runs} SET state = 'RUNNING', {open_one} WHERE id IN ({some} 1000 BETWEEN 6 AND 9)",
            f"UPDATE {steps} SET {ready}, sent_at = now() WHERE name = 'ask' AND run_id IN ({some} 1000 = 6)",
            f"UPDATE {steps} SET {ready}, sent_at = NULL WHERE name = 'ask' AND run_id IN ({some} 1000 = 7)",
            f"UPDATE {steps} SET {held} WHERE name = 'ask' AND run_id IN ({some} 1000 = 8)",
            f"UPDATE {steps} SET {leased} WHERE name = 'ask' AND run_id IN ({some} 1000 = 9)",
            f"UPDATE {tries} SET ended_at = NULL WHERE step_id IN (SELECT id FROM {steps} WHERE state = 'RUNNING')",
            f"UPDATE {effects} SET state = 'UNKNOWN', in_doubt_since = now() WHERE run_id IN ({some} 1000 = 4)",
            f"UPDATE {effects} SET provider = 'rare' WHERE run_id IN ({some} 50000 = 5)",
        ):
            cursor.execute(statement)


def _ask() -> None:
    """A request for each run that waits for a decision, copied from the one that the engine asked."""
    columns = [str(field.column) for field in ApprovalRequest._meta.concrete_fields]
    changed = {"id": "gen_random_uuid()", "run_id": "step.run_id", "step_id": "step.id"}
    values = ", ".join(changed.get(column, f"old.{column}") for column in columns)
    table, steps, runs = (one._meta.db_table for one in (ApprovalRequest, StepRun, WorkflowRun))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM (SELECT * FROM {table}) old"
            f" CROSS JOIN {steps} step JOIN {runs} run ON run.id = step.run_id"
            " WHERE run.state = 'WAITING_HUMAN' AND step.name = 'ask' AND step.id <> old.step_id"
        )


def _lengthen(run_id: UUID, count: int) -> None:
    """One run with a history of so many events, chained as the engine does."""
    from durableflows import clock, journal
    from durableflows.models.locks import lock_run
    from durableflows.transactions import atomic

    with atomic():
        run = lock_run(run_id)
        for number in range(run.event_sequence, count):
            journal.record(run, "note.written", at=clock.now(), data={"number": number})
        run.store(*journal.FIELDS)


def pages() -> Iterator[tuple[str, str]]:
    """Each page of the console and of the admin, and where it is."""
    yield from _of_console()
    yield from _of_admin()


def _of_admin() -> Iterator[tuple[str, str]]:
    tables = (
        "steprun",
        "stepattempt",
        "sideeffect",
        "effectsend",
        "runevent",
        "providerevent",
        "requestview",
        "worker",
    )
    for table in ("workflowrun", "approvalrequest", *tables):
        for page in ("", "?p=2"):
            yield f"admin: {table}{page}", f"{ADMIN}{table}/{page}"
    for query in (
        "q=bonus-4711",
        "q=77",
        "q=nothing",
        "q=asker",
        "state=FAILED",
        "state=RUNNING",
        "workflow=rare",
        "o=1",
    ):
        yield f"admin: runs by {query}", f"{ADMIN}workflowrun/?{query}"
    yield "admin: a decision", f"{ADMIN}approvalrequest/{_asked().pk}/decide/"
    long = WorkflowRun.objects.order_by("-event_sequence")[0]
    for page in ("", "?before=2500"):
        yield f"admin: a run of {long.event_sequence} events{page}", f"{ADMIN}workflowrun/{long.pk}/change/{page}"


def _of_console() -> Iterator[tuple[str, str]]:
    yield "the dashboard", CONSOLE
    yield "the workers", f"{CONSOLE}workers/"
    yield "the providers", f"{CONSOLE}providers/"
    yield "a provider", f"{CONSOLE}provider/bank/"
    yield "a provider that would be paused", f"{CONSOLE}do/pause/bank/"
    for view in MEANS:
        yield f"the list: {view}", f"{RUNS}?show={view}"
    yield "the list: held, at a provider", f"{RUNS}?show=held&provider=bank"
    yield "the list: retried, after an error", f"{RUNS}?show=retried&error=requests.exceptions.ReadTimeout"
    narrowed = {
        "a workflow": "workflow=bonus",
        "a rare workflow": "workflow=rare",
        "a state": "state=FAILED",
        "a rare state": "state=RUNNING",
        "a state that no run is in": "state=ABANDONED",
        "a workflow and a state": "workflow=bonus&state=FAILED",
        "the last hour": "age=hour",
        "older than a week": "age=over-week",
        "an owner": "owner=asker",
        "an owner that is none": "owner=nobody",
        "a subject": "subject=77",
        "a provider": "provider=bank",
        "a rare provider": "provider=rare",
        "an error": "error=ReadTimeout",
        "a rare error": "error=Error",
        "an error that is none": "error=NoSuchError",
        "a search by key": "q=bonus-4711",
        "a search by the beginning of a key": "q=bonus-",
        "a search by subject": "q=77",
        "a search that finds nothing": "q=nothing",
        "stuck, of a rare workflow": "show=stuck&workflow=rare",
        "oldest first": "sort=first",
    }
    for name, query in narrowed.items():
        yield f"narrowed to {name}", f"{RUNS}?{query}"
    count = WorkflowRun.objects.count()
    for name, place in (("page 2", 24), ("the middle", count // 2), ("the last page", count - 10)):
        run = WorkflowRun.objects.order_by("-created_at", "-id")[place]
        cursor = f"{(run.created_at - EPOCH).total_seconds() * 1e6:.0f}.{run.pk.hex}"
        yield f"the list: {name}", f"{RUNS}?after={cursor}"
    long = WorkflowRun.objects.order_by("-event_sequence")[0]
    for page in ("", "ledger/", "people/", "state/", "history/", "history/?before=2500", "history/?check=1"):
        yield f"a run of {long.event_sequence} events: {page or 'overview'}", f"{RUNS}{long.pk}/{page}"
    yield "a verb's page", f"{RUNS}{long.pk}/do/cancel/"
    yield "a decision", f"/durableflows/inbox/{_asked().pk}/"
    yield "the health", "/durableflows/health/"


def _asked() -> ApprovalRequest:
    """The request of the long run."""
    return ApprovalRequest.objects.get(run=WorkflowRun.objects.order_by("-event_sequence")[0])
