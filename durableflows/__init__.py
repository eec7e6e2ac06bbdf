"""durableflows: durable workflows for Django and Celery.

Owns the public names that workflows are declared with. Importing it loads no Django; the verbs that start,
answer and cancel runs are in `durableflows.api`, which needs the app registry.
"""

from durableflows.core.approval import Escalate, Facts, Fallback
from durableflows.core.approvers import Approvers, Band
from durableflows.core.declare import Workflow, approval, effect, step
from durableflows.core.definition import Budget, Retry
from durableflows.core.directives import StepReturn, compensate, fail, succeed
from durableflows.core.disguise import in_one_line, plainly
from durableflows.core.effects import CannotTell, EffectCall, EventOutcome, EventReading, Found, NotFound
from durableflows.core.http_answers import http_failure
from durableflows.core.merge import Merge
from durableflows.core.migrations import migration
from durableflows.core.money import Money
from durableflows.core.references import ArtifactRef, SecretRef
from durableflows.core.refs import StepRef
from durableflows.core.retry_after import parse_retry_after
from durableflows.core.run import Run
from durableflows.core.state import WorkflowState
from durableflows.core.until import Until
from durableflows.core.ways import child, each, sleep, wait_for
from durableflows.errors import (
    AlreadyDecided,
    AlreadyDone,
    ConcurrentChange,
    CredentialsRefused,
    DurableflowsError,
    FactsChanged,
    InvalidDefinition,
    InvalidState,
    KeyConflict,
    KeyInUse,
    LimitReached,
    NeedsHuman,
    NeverSent,
    NotAllowed,
    NotFoundError,
    Permanent,
    ReserveInTransaction,
    StepFailure,
    TooLate,
    Transient,
    UnknownOutcome,
    UnknownWorkflow,
)

__all__ = [
    "AlreadyDecided",
    "AlreadyDone",
    "Approvers",
    "ArtifactRef",
    "Band",
    "Budget",
    "CannotTell",
    "ConcurrentChange",
    "CredentialsRefused",
    "DurableflowsError",
    "EffectCall",
    "Escalate",
    "EventOutcome",
    "EventReading",
    "Facts",
    "FactsChanged",
    "Fallback",
    "Found",
    "InvalidDefinition",
    "InvalidState",
    "KeyConflict",
    "KeyInUse",
    "LimitReached",
    "Merge",
    "Money",
    "NeedsHuman",
    "NeverSent",
    "NotAllowed",
    "NotFound",
    "NotFoundError",
    "Permanent",
    "ReserveInTransaction",
    "Retry",
    "Run",
    "SecretRef",
    "StepFailure",
    "StepRef",
    "StepReturn",
    "TooLate",
    "Transient",
    "UnknownOutcome",
    "UnknownWorkflow",
    "Until",
    "Workflow",
    "WorkflowState",
    "approval",
    "child",
    "compensate",
    "each",
    "effect",
    "fail",
    "http_failure",
    "in_one_line",
    "migration",
    "parse_retry_after",
    "plainly",
    "sleep",
    "step",
    "succeed",
    "wait_for",
]
