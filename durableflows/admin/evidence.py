"""Steps, attempts, effects, sends, events, decisions and the rest of the rows, as lists and read-only pages."""

from typing import ClassVar

from django.contrib import admin

from durableflows.admin.readonly import ReadOnly, StateFilter, VerdictFilter
from durableflows.core.states import EffectState, StepState
from durableflows.models import (
    ApprovalDecision,
    Artifact,
    Breaker,
    BreakerChange,
    EffectSend,
    ModelCall,
    ProviderEvent,
    RequestView,
    RunEvent,
    SideEffect,
    Signal,
    StepAttempt,
    StepRun,
    Worker,
)


@admin.register(StepRun)
class StepRunAdmin(ReadOnly):
    """Steps of all runs."""

    tenant = "run__tenant"
    states: ClassVar = StepState
    list_display = ("name", "run", "visit", "state", "attempts", "wake_at", "started_at", "ended_at")
    list_filter = (StateFilter,)
    list_select_related = ("run",)


@admin.register(StepAttempt)
class StepAttemptAdmin(ReadOnly):
    """Each try of a step."""

    tenant = "step__run__tenant"
    list_display = ("__str__", "step", "worker_name", "started_at", "ended_at", "outcome", "error_text")
    list_select_related = ("step",)


@admin.register(SideEffect)
class SideEffectAdmin(ReadOnly):
    """The ledger."""

    tenant = "run__tenant"
    states: ClassVar = EffectState
    list_display = ("__str__", "run", "provider", "state", "send_count", "in_doubt_since", "settled_at", "reason")
    list_filter = (StateFilter,)
    list_select_related = ("run",)
    search_fields = ("key__exact",)
    search_help_text = "The whole idempotency key"


@admin.register(EffectSend)
class EffectSendAdmin(ReadOnly):
    """Each send and lookup of an effect."""

    tenant = "effect__run__tenant"
    list_display = ("__str__", "effect", "phase", "outcome", "started_at", "ended_at", "error_text")
    list_select_related = ("effect",)


@admin.register(ModelCall)
class ModelCallAdmin(ReadOnly):
    """Calls of models, and what they cost."""

    tenant = "run__tenant"
    list_display = ("model", "run", "step", "outcome", "estimate_usd", "cost_usd", "started_at", "ended_at")
    list_select_related = ("run", "step")


@admin.register(ProviderEvent)
class ProviderEventAdmin(ReadOnly):
    """What providers told on their own."""

    tenant = "effect__run__tenant"
    list_display = ("event_id", "provider", "kind", "arrived_at", "effect", "verdict", "reason", "copies")
    list_filter = (VerdictFilter,)
    search_fields = ("event_id__exact",)
    search_help_text = "The whole event id"
    list_select_related = ("effect",)


@admin.register(ApprovalDecision)
class ApprovalDecisionAdmin(ReadOnly):
    """Who decided what, when, and by which door."""

    tenant = "request__tenant"
    list_display = ("__str__", "request", "at", "door", "voided_at", "voided_reason")
    list_select_related = ("request",)


@admin.register(RequestView)
class RequestViewAdmin(ReadOnly):
    """Who was shown what, and by which door."""

    tenant = "request__tenant"
    list_display = ("person_name", "request", "door", "origin", "first_at", "last_at", "facts_digest")
    list_select_related = ("request",)


@admin.register(Signal)
class SignalAdmin(ReadOnly):
    """Messages from outside for a run."""

    tenant = "run__tenant"
    list_display = ("name", "run", "sender_name", "arrived_at", "used_by")
    list_select_related = ("run", "used_by")


@admin.register(Artifact)
class ArtifactAdmin(ReadOnly):
    """Where large values are kept."""

    tenant = "run__tenant"
    list_display = ("name", "run", "size_bytes", "content_type", "created_at")
    list_select_related = ("run",)


@admin.register(RunEvent)
class RunEventAdmin(ReadOnly):
    """The history of all runs, newest first."""

    tenant = "run__tenant"
    list_display = ("kind", "run", "step", "actor_name", "at")
    list_select_related = ("run", "step")


@admin.register(Worker)
class WorkerAdmin(ReadOnly):
    """Worker processes, by start."""

    ordering = ("-started_at", "boot_id")
    list_display = ("name", "host", "pid", "started_at", "heartbeat_at", "stopped_at")


@admin.register(Breaker)
class BreakerAdmin(ReadOnly):
    """Circuit breakers, one a provider."""

    ordering = ("provider",)
    list_display = ("provider", "state", "failures", "opened_at", "open_until", "changed_by", "reason")


@admin.register(BreakerChange)
class BreakerChangeAdmin(ReadOnly):
    """What became of the breakers, by whom and why."""

    ordering = ("-at", "-id")
    list_display = ("provider", "state", "at", "actor_name", "reason")
