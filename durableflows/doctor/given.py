"""What steps were given by others, compared with what these say now: signals, ends of children, what branches gave.

A signal's own row has no seal, nor has a child's result: the sealed input of the step that was given it says what it
was. Called with steps of a batch; reads only.
"""

from collections.abc import Iterator, Sequence
from typing import cast
from uuid import UUID

from durableflows import integrity
from durableflows.core.payload import JSON, same
from durableflows.doctor.findings import Found
from durableflows.doctor.rows import CHUNK, digest_of
from durableflows.given import changed_outputs
from durableflows.models import RunEvent, Signal, StepRun, WorkflowRun
from durableflows.transactions import database

Gift = dict[str, JSON]


def wrong_gifts(steps: Sequence[StepRun]) -> Iterator[Found]:
    """Each signal and child that says something else than what its step was given, and each step that gave something
    else than its history says. Broken inputs are left out.
    """
    yield from _wrong_signals(_given(steps, "signal", "sha256"))
    yield from _wrong_children(_given(steps, "child", "run"))
    for step in changed_outputs(steps, RunEvent.objects.using(database()).filter(step__in=[one.pk for one in steps])):
        yield "output-changed", step.run_id, f"what {step} gave is not what the event of its end says"


def _given(steps: Sequence[StepRun], kind: str, mark: str) -> list[tuple[StepRun, Gift]]:
    """The steps that were given something of a kind; `mark` is what only a gift has, and a wait for one has not."""
    found = []
    for step in steps:
        gift = step.input.get(kind) if isinstance(step.input, dict) else None
        if isinstance(gift, dict) and mark in gift and integrity.is_input_sealed(step):
            found.append((step, cast(Gift, gift)))
    return found


def _wrong_signals(given: Sequence[tuple[StepRun, Gift]]) -> Iterator[Found]:
    ids = [UUID(str(gift["id"])) for _, gift in given]
    rows = Signal.objects.using(database()).filter(pk__in=ids).values_list("pk", "name", "payload")
    known = {pk: (name, digest_of(payload)) for pk, name, payload in rows.iterator(chunk_size=CHUNK)}
    for step, gift in given:
        name, digest = known.get(UUID(str(gift["id"])), ("", ""))
        if not name:
            yield "signal-changed", step.run_id, f"the signal that {step} was given is gone"
        elif digest != gift["sha256"]:
            yield "signal-changed", step.run_id, f"the payload of signal {name}, which {step} was given, was changed"


def _wrong_children(given: Sequence[tuple[StepRun, Gift]]) -> Iterator[Found]:
    ids = [UUID(str(gift["run"])) for _, gift in given]
    rows = WorkflowRun.objects.using(database()).filter(pk__in=ids).values_list("pk", "state", "result")
    known = {pk: (str(state), result) for pk, state, result in rows.iterator(chunk_size=CHUNK)}
    for step, gift in given:
        now = known.get(UUID(str(gift["run"])))
        if now is None:
            yield "child-changed", step.run_id, f"the run {gift['run']}, whose end {step} was given, is gone"
        elif now[0] != gift["state"] or not same(now[1], gift["result"]):
            yield "child-changed", step.run_id, f"the end of run {gift['run']} is not what {step} was given"
