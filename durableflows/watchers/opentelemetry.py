"""One trace for a run, over days and workers: `WATCHERS = ["durableflows.watchers.opentelemetry.Traces"]`.

A span for each attempt, for each send, lookup and model call, and for each wait between them; all below the span with
which the run began, whose ids are kept in the run's row, and linked to what led to them. Uses the project's tracer
provider. Spans are handed over when the step is settled: an exporter that fails or hangs finds nothing to break.
Never a text, an argument, a name or baggage: ids, numbers, digests and words of the engine.
Source: specification S3.41 to S3.48, S3.51.
"""

from collections.abc import Iterator
from contextvars import Token
from datetime import datetime
from typing import cast
from uuid import UUID

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from durableflows.core.payload import JSON
from durableflows.models import StepAttempt, StepRun, WorkflowRun
from durableflows.transactions import database
from durableflows.watchers import attributes
from durableflows.watching import Asked, Attempt, Call, Fact, Root, Watcher

_PROPAGATOR = TraceContextTextMapPropagator()
NAME = "durableflows"
MOST_LINKS = 10


class _Begun(Root):
    """The first span of a run. It ends at once: what a process holds for days is lost with it."""

    def __init__(self, span: Span, at: datetime) -> None:
        self._span, self._at = span, at
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(span, Context()))
        self.context = cast(dict[str, JSON], {"traceparent": carrier["traceparent"]} if carrier else {})

    def keep(self) -> None:
        """The run is stored: the span may leave."""
        self._span.end(_nanoseconds(self._at))


class _Open:
    """A span that is under way, the context to come back to, and the spans inside that have ended and wait to leave."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.ended: list[tuple[Span, datetime]] = []
        self._token: Token[Context] = contexts.attach(trace.set_span_in_context(span, Context()))

    def leave(self) -> None:
        """What comes next is not inside it."""
        contexts.detach(self._token)


class Traces(Watcher):
    """Follows runs as spans."""

    def start(self, run: WorkflowRun, cause: StepRun | None) -> Root | None:
        """Begin the run's own trace, linked to what has asked for it: a request, or the step of another run."""
        asked = trace.get_current_span().get_span_context()
        links = [Link(asked, {"durableflows.link": "started by"})] if asked.is_valid else []
        cause = cause or run.parent_step  # of a child that was started by a process without traces
        if cause is not None:
            # What waits for a child has not begun: the step before it has asked for the child.
            asked_by = [step for step in (cause.pk, cause.came_from_id) if step is not None]
            links += _links(_last_spans(asked_by)[:1], "child of")
        span = _tracer().start_span(
            f"run {run.workflow}",
            Context(),
            links=links,
            start_time=_nanoseconds(run.created_at),
            attributes=attributes.of_run(run),
        )
        begun = _Begun(span, run.created_at)
        return begun if begun.context else None

    def begin(self, attempt: Attempt) -> None:
        """Begin a span below the run's first one, and let the body's own spans be below it."""
        lease, parent = attempt.claim.lease, _context_of(attempt.claim.trace_context)
        step = StepRun.objects.using(database()).get(pk=lease.step_id)
        for name, since, told in attributes.waits_before(step, lease.attempt):
            wait = _tracer().start_span(f"wait {lease.workflow}.{name}", parent, start_time=_nanoseconds(since))
            wait.set_attributes({"durableflows.run.id": str(lease.run_id), **told})
            wait.end(_nanoseconds(attempt.began_at))
        span = _tracer().start_span(
            f"step {lease.workflow}.{lease.step}",
            parent,
            links=[*_led_here(step), *_delivered_by()],
            start_time=_nanoseconds(attempt.began_at),
            attributes=attributes.of_attempt(attempt, step),
        )
        mine = span.get_span_context()
        if span.is_recording():
            attempt.ids = (trace.format_trace_id(mine.trace_id), trace.format_span_id(mine.span_id))
        attempt.kept[self] = _Open(span)

    def end(self, attempt: Attempt) -> None:
        """Say how it ended, and hand all its spans over."""
        kept = attempt.kept.pop(self, None)
        if not isinstance(kept, _Open):  # it could not begin
            return
        kept.leave()
        ended_at = attempt.now()
        for fact in attempt.facts:
            kept.span.add_event(fact.kind, attributes.of_fact(fact), _nanoseconds(fact.at))
        kept.span.set_attributes(attributes.of_settlement(attempt))
        kept.span.set_status(_status(attributes.failure_of(attempt)))
        for span, at in kept.ended:
            span.end(_nanoseconds(at))
        kept.span.end(_nanoseconds(ended_at))

    def call(self, attempt: Attempt | None, about: Asked, call: Call) -> None:
        """Begin a span below the attempt's, or below the run's first one for a lookup."""
        assert call.timed is not None
        kept = self._kept(attempt)
        parent = _context_of(about.trace_context) if kept is None else trace.set_span_in_context(kept.span, Context())
        span = _tracer().start_span(
            f"{call.kind} {call.name}",
            parent,
            kind=SpanKind.CLIENT,
            links=_links(_last_spans([about.step_id]), "asks about") if attempt is None else [],
            start_time=_nanoseconds(call.timed.now()),
            attributes=attributes.of_call(about, call),
        )
        call.timed.kept[self, id(call)] = _Open(span)

    def _kept(self, attempt: Attempt | None) -> _Open | None:
        return cast("_Open | None", attempt.kept.get(self)) if attempt is not None else None

    def answered(self, attempt: Attempt | None, about: Asked, call: Call) -> None:
        """End it with what it came to; it leaves with the attempt's."""
        assert call.timed is not None
        kept, mine = self._kept(attempt), call.timed.kept.pop((self, id(call)), None)
        if not isinstance(mine, _Open):
            return
        mine.leave()
        span = mine.span
        span.set_attributes(attributes.of_answer(call))
        span.set_status(_status(call.error_class))
        ended_at = call.ended_at or call.timed.now()
        if kept is not None:
            kept.ended.append((span, ended_at))
        else:
            span.end(_nanoseconds(ended_at))

    def told(self, fact: Fact) -> None:
        """A run that ends outside of an attempt (cancelled, expired) has a last span of its own."""
        if fact.kind != "run.ended":
            return
        run = WorkflowRun.objects.using(database()).get(pk=fact.run_id)
        span = _tracer().start_span(
            f"end {run.workflow}",
            _context_of(run.trace_context),
            start_time=_nanoseconds(fact.at),
            attributes={**attributes.of_run(run), **attributes.of_fact(fact)},
        )
        span.end(_nanoseconds(fact.at))


def _tracer() -> trace.Tracer:
    return trace.get_tracer(NAME)


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000


def _context_of(kept: dict[str, JSON]) -> Context:
    """The run's first span as a parent; nothing of the message's own context comes along."""
    return _PROPAGATOR.extract({name: str(value) for name, value in kept.items()}, Context())


def _led_here(step: StepRun) -> Iterator[Link]:
    """The tries before this one, the step whose end led here, and the child that it has waited for."""
    yield from _links(_last_spans([step.pk]), "earlier attempt")
    if step.came_from_id is not None:
        yield from _links(_last_spans([step.came_from_id]), "led here by")
    children = WorkflowRun.objects.using(database()).filter(parent_step=step).values_list("trace_context", flat=True)
    for kept in children[:MOST_LINKS]:
        child = trace.get_current_span(_context_of(kept)).get_span_context()
        if child.is_valid:
            yield Link(child, {"durableflows.link": "child run"})


def _delivered_by() -> Iterator[Link]:
    """The span of the Celery task, where somebody traces those."""
    current = trace.get_current_span().get_span_context()
    if current.is_valid:
        yield Link(current, {"durableflows.link": "delivered by"})


def _last_spans(steps: list[UUID]) -> list[tuple[str, str]]:
    rows = StepAttempt.objects.using(database()).filter(step__in=steps).exclude(span_id="").order_by("-number")
    return list(rows.values_list("trace_id", "span_id")[:MOST_LINKS])


def _links(ids: list[tuple[str, str]], word: str) -> list[Link]:
    return [
        Link(SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True), {"durableflows.link": word})
        for trace_id, span_id in ids
    ]


def _status(failure: str) -> Status:
    return Status(StatusCode.ERROR, failure) if failure else Status(StatusCode.UNSET)
