"""One issue for each (workflow, step, error class): `WATCHERS = ["durableflows.watchers.sentry.Issues"]`.

Loud: an error in the project's code, and whatever needs a person. Silent: tries that are left, waits, holds, cancels,
and failures that were declared. Uses the client of the project's own `sentry_sdk.init`; without one it does nothing. An
event carries ids, classes, stack frames without their variables, and the error's text as the rows keep it. From events
of others the variables of the engine's frames are taken, and secrets from their breadcrumbs.
Source: design, section 5; P14; R38.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import sentry_sdk
from sentry_sdk.crons import capture_checkin
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.scope import add_global_event_processor
from sentry_sdk.utils import event_from_exception

from durableflows.core.classify import describe
from durableflows.core.outcomes import Failed
from durableflows.core.payload import JSON, redact
from durableflows.core.secrecy import mask_text
from durableflows.core.states import ParkedReason
from durableflows.models import RunEvent, StepAttempt, WorkflowRun
from durableflows.transactions import database
from durableflows.watchers import lost_workers
from durableflows.watching import Asked, Attempt, Call, Fact, Watcher

LOUD = frozenset(
    {"run.parked", "step.needs_person", "effect.alert", "approval.unanswerable"}
    | {"effect.undo_failed", "run.undo_given_up", "run.cleanup_failed"}
)
"""Facts that somebody must see."""

OURS = ("durableflows.events", "durableflows.runner", "durableflows.approvals", "durableflows.watching")
"""Loggers whose lines say what is reported here: Sentry's logging integration would report it twice, with facts."""

MONITOR = "durableflows-sweep"
CHECK_IN_SECONDS = 60.0
MOST_TRIES = 20
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")

Event = dict[str, Any]


class Issues(Watcher):
    """Reports what needs somebody, and that the sweeper lives."""

    def __init__(self) -> None:
        for name in OURS:
            ignore_logger(name)
        lost_workers.leave_out()
        add_global_event_processor(_guarded)
        self._checked_in, self._failed = 0.0, False

    def begin(self, attempt: Attempt) -> None:
        """Let what the body itself reports name the step, without variables."""
        scope: AbstractContextManager[Any] = sentry_sdk.new_scope()
        inner = scope.__enter__()
        attempt.kept[self] = scope
        for name, value in _tags(attempt).items():
            inner.set_tag(name, value)
        inner.add_event_processor(lambda event, hint: _scrubbed(event))

    def answered(self, attempt: Attempt | None, about: Asked, call: Call) -> None:
        """Leave a breadcrumb."""
        if attempt is not None:
            crumb = {"kind": call.kind, "state": call.state, "number": call.number}
            _crumbs(attempt).append(_crumb(f"{call.kind} {call.name}: {call.answer}", call.ended_at, crumb))

    def end(self, attempt: Attempt) -> None:
        """Report the attempt when somebody must look."""
        scope = attempt.kept.pop(self, None)
        if isinstance(scope, AbstractContextManager):
            scope.__exit__(None, None, None)
        loud = [fact for fact in attempt.facts if _is_loud(fact)]
        if not loud or not sentry_sdk.get_client().is_active():
            return
        lease, failed = attempt.claim.lease, attempt.outcome
        info = failed.error if isinstance(failed, Failed) else None
        error = attempt.error if info is not None else None
        what = (info.error_class or info.code) if info is not None else _word(loud[0])
        event = _event(lease.workflow, lease.step, what, _tags(attempt))
        event["breadcrumbs"] = {"values": [*_tries_before(attempt), *_crumbs(attempt)]}
        if attempt.ids[0]:
            event["contexts"]["trace"] = dict(zip(("trace_id", "span_id"), attempt.ids, strict=True))
        _capture(event, error)

    def told(self, fact: Fact) -> None:
        """Report what a sweep, a person or a provider's event has brought to light."""
        if not _is_loud(fact) or not sentry_sdk.get_client().is_active():
            return
        run = WorkflowRun.objects.using(database()).get(pk=fact.run_id)
        step = str(fact.data.get("step") or fact.data.get("effect") or _last_step(run))
        tags = {
            "durableflows.workflow": run.workflow,
            "durableflows.version": str(run.version),
            "durableflows.step": step,
            "durableflows.run": str(run.pk),
        }
        _capture(_event(run.workflow, step, _word(fact), tags), None)

    def swept(self, seconds: float, error: BaseException | None) -> None:
        """Check in, once a minute, and at once when it fails or is well again: when no ticker does, Sentry says so."""
        now, has_failed = time.monotonic(), error is not None
        if now - self._checked_in < CHECK_IN_SECONDS and has_failed == self._failed:
            return
        self._checked_in, self._failed = now, has_failed
        capture_checkin(
            monitor_slug=MONITOR,
            status="ok" if error is None else "error",
            duration=seconds,
            monitor_config={
                "schedule": {"type": "interval", "value": 1, "unit": "minute"},
                "checkin_margin": 2,
                "max_runtime": 2,
                "failure_issue_threshold": 2,
                "recovery_threshold": 1,
            },
        )


def _is_loud(fact: Fact) -> bool:
    return fact.kind in LOUD and fact.data.get("reason") != ParkedReason.PAUSED


def _word(fact: Fact) -> str:
    """What stands for a class where no error was raised: why a run was parked, or what kind of fact it is."""
    return str(fact.data.get("reason")) if fact.kind == "run.parked" else fact.kind


def _last_step(run: WorkflowRun) -> str:
    """The step that history has told of last: a run is parked because of it."""
    rows = RunEvent.objects.using(database()).filter(run=run, step__isnull=False)
    return str(rows.order_by("-sequence").values_list("step__name", flat=True).first() or "")


def _tags(attempt: Attempt) -> dict[str, str]:
    lease = attempt.claim.lease
    return {
        "durableflows.workflow": lease.workflow,
        "durableflows.version": str(lease.version),
        "durableflows.step": lease.step,
        "durableflows.run": str(lease.run_id),
        "durableflows.attempt": str(lease.attempt),
    }


def _event(workflow: str, step: str, what: str, tags: Mapping[str, str]) -> Event:
    return {
        "level": "error",
        "logger": "durableflows",
        "message": f"{workflow}.{step}: {what}",
        "transaction": f"{workflow}.{step}",
        "fingerprint": ["durableflows", workflow, step, what],
        "tags": dict(tags),
        "contexts": {"durableflows": {name.partition(".")[2]: value for name, value in tags.items()}},
    }


def _capture(event: Event, error: BaseException | None) -> None:
    """Send it, without what scopes hold: requests, log lines and extras are not of the step."""
    client = sentry_sdk.get_client()
    hint: Event = {}
    if error is not None:
        options = {**client.options, "include_local_variables": False}
        raised, found = event_from_exception(error, client_options=options, mechanism={"type": "durableflows"})
        event |= {"exception": dict(raised)["exception"]}
        hint = dict(found)
        del event["message"]
        _say_as_stored(event, error)
    client.capture_event(_scrubbed(event), hint)


def _say_as_stored(event: Event, error: BaseException) -> None:
    """The texts of the error and of its causes as rows keep them: masked, and without addresses of people."""
    for value in event["exception"].get("values", ()):
        value["value"] = _ADDRESS.sub("[address]", mask_text(str(value.get("value") or "")))[:500]
    values = event["exception"].get("values", ())
    if values:
        values[-1]["value"] = _ADDRESS.sub("[address]", describe(error).text)[:500]


def _scrubbed(event: Any) -> Any:
    """Drop the variables of all frames, which are arguments, states and facts; mask secrets in all texts."""
    for frame in _frames(event):
        frame.pop("vars", None)
    return redact(event)


def _guarded(event: Any, hint: Any) -> Any:
    """An event that somebody else made: the engine's log lines, a view that called a verb, the project's own."""
    if str(event.get("logger") or "").partition(".")[0] == "durableflows":
        return _scrubbed(event)
    for frame in _frames(event):
        if str(frame.get("module") or "").partition(".")[0] == "durableflows":
            frame.pop("vars", None)
    if event.get("breadcrumbs"):
        event["breadcrumbs"] = redact(event["breadcrumbs"])
    return event


def _frames(event: Any) -> Iterator[Event]:
    for part in ("exception", "threads"):
        for value in (event.get(part) or {}).get("values", ()):
            yield from (value.get("stacktrace") or {}).get("frames", ())


def _crumbs(attempt: Attempt) -> list[Event]:
    found = attempt.kept.setdefault("sentry breadcrumbs", [])
    assert isinstance(found, list)
    return found


def _crumb(message: str, at: Any, data: Mapping[str, object]) -> Event:
    return {"category": "durableflows", "level": "info", "message": message, "timestamp": at, "data": dict(data)}


def _tries_before(attempt: Attempt) -> Iterator[Event]:
    """The attempts before this one, in whatever worker they were."""
    lease = attempt.claim.lease
    rows = StepAttempt.objects.using(database()).filter(step=lease.step_id, number__lt=lease.attempt)
    for row in reversed(rows.order_by("-number")[:MOST_TRIES]):
        data: dict[str, JSON] = {"error": row.error_class, "worker": row.worker_name, "delay": row.delay_seconds}
        yield _crumb(f"attempt {row.number}: {row.outcome}", row.ended_at or row.started_at, data)
