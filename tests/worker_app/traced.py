"""A run that acts, waits for two days and for a child, with its spans in a file for each process."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from celery.signals import worker_process_init

from durableflows import EffectCall, Run, StepReturn, Workflow, WorkflowState, child, clock, effect, sleep, step

TWO_DAYS = timedelta(days=2)


class TracedState(WorkflowState):
    """A customer, who must be in no trace."""

    customer: str


@effect(name="traced.greet", provider="post", receipt=str, key_window=TWO_DAYS, settle_seconds=16.0)
def greet(call: EffectCall, *, customer: str) -> str:
    """Greets once a key."""
    return f"dear {customer}"


class Inner(Workflow[TracedState]):
    """One step."""

    name, version = "traced_inner", 1
    deadline = timedelta(days=60)

    @step(start=True, end=True)
    def look(self, run: Run[TracedState]) -> None: ...


class Traced(Workflow[TracedState]):
    """begin (greets) -> two days -> fetch (a child) -> finish."""

    name, version = "traced", 1
    deadline = timedelta(days=60)

    @step(start=True, to="fetch", effects=(greet,))
    def begin(self, run: Run[TracedState]) -> StepReturn:
        run.effect(greet, customer=run.state.customer)
        return sleep(TWO_DAYS, then=self.fetch)

    @step(to="finish")
    def fetch(self, run: Run[TracedState]) -> StepReturn:
        return child(Inner, {"customer": run.state.customer}, then=self.finish)

    @step(end=True)
    def finish(self, run: Run[TracedState]) -> None: ...


class FileClock:
    """The real time, and as much more as a file says."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def now(self) -> datetime:
        """For all processes that read the file."""
        ahead = float(self._path.read_text()) if self._path.exists() else 0.0
        return datetime.now(UTC) + timedelta(seconds=ahead)


def trace_into(folder: Path) -> None:
    """Let this process write each span that ends into a file of its own."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

    class IntoFile(SpanExporter):
        def export(self, spans):
            with (folder / f"spans-{os.getpid()}").open("a") as page:
                page.writelines(json.dumps(json.loads(span.to_json())) + "\n" for span in spans)
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(IntoFile()))
    trace.set_tracer_provider(provider)


def report_into(folder: Path) -> None:
    """Let this process and its children write what Sentry would be sent into files, as a project that has set it up."""
    import sentry_sdk
    from sentry_sdk.transport import Transport

    class IntoFile(Transport):
        def capture_envelope(self, envelope):
            with (folder / f"sentry-{os.getpid()}").open("a") as page:
                page.writelines(item.payload.get_bytes().decode() + "\n" for item in envelope.items)

    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=IntoFile)


if "TEST_SENTRY" in os.environ:
    report_into(Path(os.environ["TEST_SENTRY"]))
if "TEST_CLOCK" in os.environ:
    AHEAD = clock.replaced(FileClock(Path(os.environ["TEST_CLOCK"])))
    AHEAD.__enter__()  # for as long as the process lives
if "TEST_SPANS" in os.environ:
    worker_process_init.connect(lambda **_: trace_into(Path(os.environ["TEST_SPANS"])), weak=False)
