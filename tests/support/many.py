"""Thousands of runs, or of requests, in a moment: copies of one that the engine wrote. PostgreSQL only.

A copy has the run's row and its steps, under new ids; no history and no digest of its own: it can wait and be listed,
and no worker would go on with it.
"""

from uuid import UUID

from django.db import connection, models

from durableflows.models import ApprovalRequest, StepRun, WorkflowRun


def copy_run(run_id: UUID, count: int) -> None:
    """Make `count` copies of a run."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMP TABLE copies ON COMMIT PRESERVE ROWS AS SELECT gen_random_uuid() AS id"
            " FROM generate_series(1, %s)",
            [count],
        )
        cursor.execute(_insert(WorkflowRun, {"id": "copies.id"}, "id"), [run_id])
        cursor.execute(_insert(StepRun, {"id": "gen_random_uuid()", "run_id": "copies.id"}, "run_id"), [run_id])
        cursor.execute("DROP TABLE copies")
        for model in (WorkflowRun, StepRun):
            cursor.execute(f"ANALYZE {model._meta.db_table}")


def copy_request(request_id: UUID, count: int) -> None:
    """Make `count` copies of the run that a request is of, each with its request; they expire a minute apart."""
    run_id = ApprovalRequest.objects.values_list("run_id", flat=True).get(pk=request_id)
    copy_run(run_id, count)
    changed = {
        "id": "gen_random_uuid()",
        "run_id": "step.run_id",
        "step_id": "step.id",
        "expires_at": "old.expires_at + row_number() OVER (ORDER BY step.id) * interval '1 minute'",
    }
    columns = [str(field.column) for field in ApprovalRequest._meta.concrete_fields]
    values = [changed.get(column, f"old.{column}") for column in columns]
    table, steps = ApprovalRequest._meta.db_table, StepRun._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)}"
            f" FROM {table} old JOIN {steps} asking ON asking.id = old.step_id"
            f" JOIN {steps} step ON step.name = asking.name AND step.state = asking.state AND step.id <> old.step_id"
            " WHERE old.id = %s",
            [request_id],
        )
        cursor.execute(f"ANALYZE {table}")


def _insert(model: type[models.Model], changed: dict[str, str], of: str) -> str:
    columns = [str(field.column) for field in model._meta.concrete_fields]
    values = [changed.get(column, f"old.{column}") for column in columns]
    table = model._meta.db_table
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {table} old, copies"
        f" WHERE old.{of} = %s"
    )
