"""The public names, written down twice: adding, renaming or dropping one is a decision, with a line in CHANGELOG.md."""

import ast
import importlib
import inspect
from types import ModuleType

import pytest

import durableflows
from durableflows import api
from tests.contract.layers import PUBLIC
from tests.contract.source import ENGINE, modules, tree

DECLARING = {
    "Workflow", "WorkflowState", "Run", "Money", "Facts", "step", "approval", "effect", "Retry", "Budget", "Escalate",
    "EffectCall", "Found", "NotFound", "CannotTell", "StepRef", "StepReturn", "succeed", "fail", "compensate",
    "each", "sleep", "wait_for", "child", "Merge", "migration", "ArtifactRef", "SecretRef",
    "EventOutcome", "EventReading", "Approvers", "Band", "Fallback", "Until",
    "http_failure", "parse_retry_after", "in_one_line", "plainly",
}  # fmt: skip
ERRORS = {
    "DurableflowsError", "InvalidDefinition", "InvalidState", "UnknownWorkflow", "NotFoundError", "NotAllowed",
    "TooLate", "AlreadyDecided", "FactsChanged", "ConcurrentChange", "KeyConflict", "KeyInUse", "LimitReached",
    "ReserveInTransaction", "StepFailure", "Transient", "Permanent", "UnknownOutcome", "NeedsHuman", "NeverSent",
    "CredentialsRefused", "AlreadyDone",
}  # fmt: skip
VERBS = {
    "Explanation",
    "Fact",
    "Line",
    "Preview",
    "abandon",
    "compensate",
    "edit",
    "extend",
    "pause",
    "pause_provider",
    "preview",
    "redrive",
    "resume",
    "resume_provider",
    "start",
    "get",
    "migrate",
    "cancel",
    "retry",
    "signal",
    "provider_event",
    "answer",
    "may_answer",
    "note_shown",
    "resolve_effect",
    "explain",
    "delegate",
    "end_delegation",
    "reassign",
    "ask_requester",
    "reply",
    "withdraw",
}
ROWS = {
    "WorkflowRun", "StepRun", "StepAttempt", "SideEffect", "EffectSend", "ProviderEvent", "ApprovalRequest",
    "ApprovalDecision", "Addressee", "RequestView", "Signal", "Artifact", "RunEvent", "Worker", "Breaker",
    "BreakerChange", "ModelCall", "PinnedContent", "Announcement", "Notification", "ApprovalLink", "Delegation",
    "RequestNote",
}  # fmt: skip

TESTING = {
    "Behaviour", "Boundary", "Crash", "FakeClock", "FlakyGateway", "Report", "Scenario", "Schedule", "World",
    "crash_at", "effect_states", "faulttest", "next_due", "open_request", "run_step", "run_until_idle", "scenario",
    "virtual",
}  # fmt: skip


def test_names_that_workflows_are_declared_with():
    assert set(durableflows.__all__) == DECLARING | ERRORS


def test_verbs():
    """S3.16."""
    assert set(api.__all__) == VERBS


def test_rows():
    from durableflows import models

    assert set(models.__all__) == ROWS


def test_names_that_admin_pages_are_written_with():
    from durableflows import admin

    assert set(admin.__all__) == {"RunsOfSubject"}


def test_names_that_tests_are_written_with():
    from durableflows import testing

    assert set(testing.__all__) == TESTING


@pytest.mark.parametrize("module", [durableflows, api], ids=lambda module: module.__name__)
def test_every_public_name_says_what_it_is_for(module: ModuleType):
    undocumented = [name for name in module.__all__ if not inspect.getdoc(getattr(module, name))]

    assert not undocumented


def test_no_other_module_claims_to_be_public():
    """Packages are left out: theirs says what they pass on from the modules inside."""
    claims = [
        name
        for name, path in modules(ENGINE).items()
        if path.name != "__init__.py"
        for node in tree(path).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]

    assert set(claims) <= {f"{ENGINE}.{name}".rstrip(".") for name in PUBLIC}


def test_control_flow_of_the_engine_is_not_offered():
    errors = importlib.import_module("durableflows.errors")
    hidden = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException) and not issubclass(value, Exception)
    }

    assert hidden
    assert not hidden & set(durableflows.__all__)
