"""One trace for a run over days: a span for each attempt, call and wait, linked, with ids and digests and no texts."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import transaction
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from durableflows import Transient, UnknownOutcome, api
from durableflows.core.payload import sha256
from durableflows.core.states import RunState
from durableflows.models import ApprovalDecision, SideEffect, StepAttempt, WorkflowRun
from durableflows.testing import World, open_request
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow, raise_without_acting
from tests.support.refunds import person
from tests.support.tracing import tracer_provider

pytestmark = pytest.mark.django_db(transaction=True)

TRACES = "durableflows.watchers.opentelemetry.Traces"
EXPORTED = InMemorySpanExporter()
BROKEN: list[Exception] = []


class Breaking(SpanProcessor):
    """Fails when it is told to."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self._fail()

    def on_end(self, span: ReadableSpan) -> None:
        self._fail()

    def _fail(self) -> None:
        if BROKEN:
            raise BROKEN[0]


class BreakingExporter(SpanExporter):
    """Fails when it is told to."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if BROKEN:
            raise BROKEN[0]
        return SpanExportResult.SUCCESS


@pytest.fixture(scope="module", autouse=True)
def provider_of_the_project() -> None:
    for processor in (SimpleSpanProcessor(EXPORTED), Breaking(), SimpleSpanProcessor(BreakingExporter())):
        tracer_provider().add_span_processor(processor)


@pytest.fixture(autouse=True)
def traced(settings: LazySettings) -> Iterator[None]:
    settings.DURABLEFLOWS = {**settings.DURABLEFLOWS, "WATCHERS": [TRACES]}
    EXPORTED.clear()
    yield
    BROKEN.clear()


def spans() -> list[ReadableSpan]:
    return sorted(EXPORTED.get_finished_spans(), key=lambda span: (span.start_time or 0, span.end_time or 0))


def named(name: str) -> list[ReadableSpan]:
    return [span for span in spans() if span.name == name]


def id_of(span: ReadableSpan) -> int:
    return int(span.context.span_id)


def links_of(span: ReadableSpan) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for link in span.links:
        assert link.attributes
        found.setdefault(str(link.attributes["durableflows.link"]), set()).add(link.context.span_id)
    return found


def told(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("durableflows."): value for name, value in (span.attributes or {}).items()}


def test_a_run_is_one_trace_with_a_span_for_each_attempt_and_each_call(world: World):
    """S3.41, S3.51: ids, parents and links; the rows name trace and span."""
    provider = Provider(faults=[raise_without_acting(Transient("Ada Lovelace is busy"))])
    run = api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    world.run_through()

    (root,) = named("run pay")
    first, second = named("step pay.pay")
    sends = named("send " + SideEffect.objects.get().effect)
    assert {span.context.trace_id for span in spans()} == {root.context.trace_id}
    assert {span.parent.span_id for span in (first, second) if span.parent} == {id_of(root)}
    assert [span.parent.span_id for span in sends if span.parent] == [id_of(first), id_of(second)]
    assert links_of(second)["earlier attempt"] == {id_of(first)}
    rows = StepAttempt.objects.filter(step__run=run, step__name="pay").order_by("number")
    hex_ids = [(format(span.context.trace_id, "032x"), format(id_of(span), "016x")) for span in (first, second)]
    assert list(rows.values_list("trace_id", "span_id")) == hex_ids
    assert [told(span)["attempt.id"] for span in (first, second)] == [str(row.pk) for row in rows]
    kept = WorkflowRun.objects.get(pk=run.pk).trace_context
    assert set(kept) == {"traceparent"}
    assert format(root.context.trace_id, "032x") in str(kept["traceparent"])
    assert first.status.status_code is StatusCode.ERROR
    assert second.status.status_code is StatusCode.UNSET


def test_spans_have_versions_digests_keys_receipts_limits_and_ends(world: World):
    """S3.42 to S3.45, S3.47."""
    provider = Provider(faults=[raise_without_acting(Transient("busy"))])
    run = api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    world.run_through()

    first, second = map(told, named("step pay.pay"))
    send = told(named("send " + SideEffect.objects.get().effect)[-1])
    effect = SideEffect.objects.get()
    stored = WorkflowRun.objects.get(pk=run.pk)
    assert (second["workflow.version"], second["pinned.structure"]) == (1, stored.manifest["structure"])
    assert second["pinned.effects." + effect.effect] == "1"
    assert second["state.sha256"] == sha256({"amount": 5, "receipt_id": None, "ask": False})
    assert (send["effect.key"], send["effect.request_sha256"]) == (effect.key, effect.request_digest)
    assert send["effect.receipt_sha256"] == sha256(effect.receipt)
    assert (send["effect.answer"], send["effect.state"]) == ("receipt", "CONFIRMED")
    assert first["outcome"] == "transient"
    assert first["error.kind"] == "transient"
    assert first["backoff_seconds"] > 0
    assert second["retry.after"] == "transient"
    assert second["retry.error_class"].endswith("Transient")
    assert second["retry.backoff_seconds"] == first["backoff_seconds"]
    assert second["lease.must_end_by"] < second["deadline"]
    assert [told(span)["run.state"] for span in spans() if "run.state" in told(span)] == ["SUCCEEDED"]


def test_waits_of_days_are_spans_between_attempts_with_who_decided(world: World):
    """S3.46: by reference; two days by the clock, and the same trace after them."""
    provider = Provider()
    run = api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5, "ask": True}, by=person("requester"))
    world.run_through()
    world.clock.advance(days=2)
    asked, boss = open_request(run.pk), person("boss", "answer_approval")
    api.answer(asked.pk, "approve", by=boss, facts_digest=asked.facts_digest, comment="fine for Ada")
    world.run_through()

    decision = ApprovalDecision.objects.get()
    (wait,) = [span for span in spans() if told(span).get("wait.for") == "person"]
    assert api.get(run.pk).state == RunState.SUCCEEDED
    assert (wait.end_time or 0) - (wait.start_time or 0) >= timedelta(days=2).total_seconds() * 1e9
    assert told(wait)["approval.decision_ids"] == (str(decision.pk),)
    assert told(wait)["approval.actor_ids"] == (str(decision.actor_id),)
    assert told(wait)["approval.verdicts"] == ("approve",)
    assert len({span.context.trace_id for span in spans()}) == 1
    steps = [span for span in spans() if span.name.startswith("step ")]
    led = [links_of(span).get("led here by", set()) for span in steps]
    assert sum(1 for ids in led if ids) == len(steps) - 1
    assert set().union(*led) < set(map(id_of, steps))


def test_a_lookup_is_a_span_that_is_linked_to_what_it_asks_about(world: World):
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("cut"))])
    api.start(pay_workflow(provider, pay_effect(provider, key_window=None)), {"amount": 5})
    world.run_through()

    lookup = next(span for span in spans() if span.name.startswith("lookup "))
    attempts = named("step pay.pay")
    assert told(lookup)["effect.answer"] == "found"
    assert links_of(lookup)["asks about"] == {id_of(attempts[0])}
    assert lookup.context.trace_id == attempts[0].context.trace_id


def test_no_text_argument_name_or_baggage_is_in_a_trace(world: World):
    """P14: neither of the customer nor of who asked; and what a caller carries along is not kept."""
    carried = context.attach(baggage.set_baggage("customer", "ada@example.com"))
    provider = Provider(faults=[raise_without_acting(Transient("ada@example.com is busy"))])
    workflow = pay_workflow(provider, pay_effect(provider))
    run = api.start(workflow, {"amount": 424242424242}, key="order of ada@example.com", by=person("ada@example.com"))
    context.detach(carried)
    world.run_through()

    printed = "".join(span.to_json() for span in spans())
    assert "424242424242" not in printed
    assert "ada@" not in printed
    assert "ada@" not in str(WorkflowRun.objects.get(pk=run.pk).trace_context)


def test_who_started_it_is_linked_and_keeps_a_trace_of_its_own(world: World):
    provider = Provider()
    with trace.get_tracer("shop").start_as_current_span("POST /refund") as request:
        api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    world.run_through()

    (root,) = named("run pay")
    assert links_of(root)["started by"] == {request.get_span_context().span_id}
    assert root.context.trace_id != request.get_span_context().trace_id


def test_a_run_that_began_before_anybody_traced_gets_its_trace_with_its_next_attempt(
    world: World, settings: LazySettings
):
    traced = settings.DURABLEFLOWS
    settings.DURABLEFLOWS = {**traced, "WATCHERS": []}
    provider = Provider()
    run = api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    settings.DURABLEFLOWS = traced
    world.run_through()

    assert len(named("run pay")) == 1
    assert len({span.context.trace_id for span in spans()}) == 1
    assert WorkflowRun.objects.get(pk=run.pk).trace_context


def test_a_run_that_is_cancelled_has_a_last_span(world: World):
    provider = Provider()
    run = api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    api.cancel(run.pk, by=None, reason="not wanted by Ada")

    (end,) = named("end pay")
    assert told(end)["fact.state"] == "CANCELLED"
    assert end.context.trace_id == named("run pay")[0].context.trace_id


def test_a_start_that_was_rolled_back_or_came_twice_leaves_no_trace(world: World):
    provider = Provider()
    workflow = pay_workflow(provider, pay_effect(provider))
    api.start(workflow, {"amount": 5}, key="one")
    with transaction.atomic():
        api.start(workflow, {"amount": 5}, key="two")
        transaction.set_rollback(True)

    assert len(named("run pay")) == 1


def test_a_tracer_that_fails_everywhere_breaks_nothing(world: World):
    BROKEN.append(RuntimeError("the collector is gone"))
    provider = Provider()
    run = api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    world.run_through()

    assert api.get(run.pk).state == RunState.SUCCEEDED
    assert StepAttempt.objects.filter(step__run=run).count() == 3
    assert len(provider.acts) == 1
