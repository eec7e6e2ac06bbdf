"""Verbs that tell a run something: a signal, what became of an effect, a newer version. Through `api` alone."""

from argparse import Namespace
from uuid import UUID

from durableflows import api, gate
from durableflows.core import registry
from durableflows.core.states import StepState, WaitsOn
from durableflows.errors import InvalidState, NotFoundError
from durableflows.explain_words import plain
from durableflows.management import operators, tables
from durableflows.management.operators import person, reason
from durableflows.management.tables import Report
from durableflows.models import SideEffect, StepRun
from durableflows.selectors import runs_for
from durableflows.transactions import database

CHUNK = 200


def signal(options: Namespace) -> Report:
    """Send a message to a run."""
    sent = api.signal(options.run, options.name, options.payload, dedup_key=options.key, by=person(options.by))
    used = (
        "a step goes on with it"
        if sent.used_by_id
        else f"it is kept until a step waits for it; {_awaited(sent.run_id)}"
    )
    data = {"id": sent.pk, "run": sent.run_id, "name": sent.name, "used": bool(sent.used_by_id)}
    return Report(data, [f"run {sent.run_id}: signal {plain(sent.name)} is stored; {used}"])


def _awaited(run_id: UUID) -> str:
    """Name the signals that the run waits for: whoever has sent another one sees the right name beside it."""
    steps = StepRun.objects.using(database()).filter(run=run_id, state=StepState.WAITING, waits_on=WaitsOn.SIGNAL)
    names = sorted({plain(name) for name in steps.values_list("waits_for", flat=True)})
    return f"now the run waits for {', '.join(names) or 'no signal'}"


def migrate(options: Namespace) -> Report:
    """Let one run, or all of a workflow that can, go on under a newer version. Fails when one was not taken."""
    if bool(options.run) == bool(options.workflow):
        raise InvalidState("say which: the id of a run, or --workflow NAME for all of its runs that can be migrated")
    if options.run and options.dry_run:
        return operators.previewed(options, {"version": options.target})
    if options.dry_run:
        raise InvalidState("--dry-run is for one run; for all of them: `gate` says what stands in the way of which")
    if options.run:
        run = api.migrate(options.run, by=person(options.by), reason=reason(options), version=options.target)
        return operators.changed(run, f"goes on under version {run.version}")
    registry.get(options.workflow)  # a mistyped name is an error, not a workflow without runs
    done: list[tables.Row] = []
    failed: list[tables.Row] = []
    runs = runs_for(person(options.by)).filter(workflow=options.workflow, ended_at__isnull=True)
    for run in runs.order_by("pk").iterator(chunk_size=CHUNK):
        if options.target == run.version or (options.target is None and gate.way_forward(run) is None):
            continue
        try:
            moved = api.migrate(run.pk, by=person(options.by), reason=reason(options), version=options.target)
            done.append({"run": moved.pk, "version": moved.version})
        except Exception as error:  # noqa: BLE001 - the others are migrated all the same, and the exit code tells
            failed.append(tables.refusal(run.pk, error))
    lines = [f"{len(done)} migrated, {len(failed)} not"]
    lines += tables.refusals(failed)
    return Report({"migrated": done, "failed": failed}, lines, 1 if failed else 0)


def resolve(options: Namespace) -> Report:
    """Say what happened with an effect in doubt."""
    effect_id = _id(options.effect, "an effect")
    row = api.resolve_effect(
        effect_id,
        options.verdict,
        by=person(options.by),
        reason=reason(options),
        row_version=options.row_version,
        receipt=options.receipt,
    )
    row = SideEffect.objects.using(database()).get(pk=row.pk)  # the step was looked at after the verdict
    return Report(tables.of_effect(row), [f"effect {row.pk}: {plain(row.effect)} is {row.state}"])


def _id(text: str, what: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFoundError(f"{plain(text, 60)!r} is not the id of {what}") from None
