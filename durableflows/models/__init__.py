"""The rows. Public by these names; written only by the engine (`ledger`, `journal`, `progress`, `services`)."""

from durableflows.models.approval import Addressee, ApprovalDecision, ApprovalRequest
from durableflows.models.artifact import Artifact
from durableflows.models.breaker import Breaker, BreakerChange
from durableflows.models.effect import EffectSend, ProviderEvent, SideEffect
from durableflows.models.event import RunEvent
from durableflows.models.look import RequestView
from durableflows.models.model_call import ModelCall
from durableflows.models.notice import Announcement, Notification
from durableflows.models.person import ApprovalLink, Delegation, RequestNote
from durableflows.models.pinned import PinnedContent
from durableflows.models.run import WorkflowRun
from durableflows.models.signal import Signal
from durableflows.models.step import StepAttempt, StepRun
from durableflows.models.worker import Worker

__all__ = [
    "Addressee",
    "Announcement",
    "ApprovalDecision",
    "ApprovalLink",
    "ApprovalRequest",
    "Artifact",
    "Breaker",
    "BreakerChange",
    "Delegation",
    "EffectSend",
    "ModelCall",
    "Notification",
    "PinnedContent",
    "ProviderEvent",
    "RequestNote",
    "RequestView",
    "RunEvent",
    "SideEffect",
    "Signal",
    "StepAttempt",
    "StepRun",
    "Worker",
    "WorkflowRun",
]
