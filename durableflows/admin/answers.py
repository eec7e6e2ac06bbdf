"""What the decision page shows around the facts: the form, what follows from each answer, the rules, and why there is
no button. Reads declarations and one request; decides nothing.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils.timesince import timesince

from durableflows.core import registry
from durableflows.core.definition import WorkflowDefinition
from durableflows.core.payload import sha256
from durableflows.core.states import ApprovalState
from durableflows.errors import InvalidDefinition, InvalidState
from durableflows.models import ApprovalRequest
from durableflows.selectors import refusal
from durableflows.services.approvals import COMMENT_LIMIT, differences


class DecisionForm(forms.Form):
    """An answer as it is posted: the verdict, the digest of what was shown, and the shown facts themselves."""

    verdict = forms.ChoiceField(
        choices=[("approve", "Approve"), ("reject", "Reject")],
        error_messages={"required": "Choose approve or reject.", "invalid_choice": "Choose approve or reject."},
    )
    comment = forms.CharField(required=False, max_length=COMMENT_LIMIT, widget=forms.Textarea)
    facts_digest = forms.CharField(
        max_length=64, error_messages={"required": "This page did not say which facts it showed: look at them again."}
    )
    shown = forms.CharField(required=False)


def consequences(asked: ApprovalRequest) -> list[tuple[str, str]]:
    """Say what each answer leads to. Empty when this process does not know the workflow."""
    try:
        definition = registry.get(asked.run.workflow, asked.run.version)
        spec = definition.step(asked.step.name).approval
    except InvalidDefinition:
        return []
    if spec is None:
        return []
    return [("Approve", _goes_on(definition, spec.approved)), ("Reject", _goes_on(definition, spec.rejected))]


def _goes_on(definition: WorkflowDefinition, name: str) -> str:
    step = definition.step(name)
    calls = ", ".join(f"{effect.name} at {effect.provider}" for effect in step.effects)
    text = f"the run goes on with “{name.replace('_', ' ')}”"
    return f"{text}, which calls {calls}" if calls else text


def rules(asked: ApprovalRequest) -> list[tuple[str, str]]:
    """Say who may decide, how many must, and what happens when nobody does."""
    people = "one person" if asked.quorum == 1 else f"{asked.quorum} people"
    found = [
        ("Who may decide", f"people with the permission {asked.permission}"),
        ("How many must approve", f"{people}; one rejection is enough to reject"),
    ]
    if asked.exclude_requester:
        found.append(
            ("Who may not", f"{asked.requester_name or 'the person'} who asked for it, administrators included")
        )
    rungs = asked.ladder[asked.ladder_position :]
    next_ = [f"people with {rung['permission']} are asked for {_span(rung['expires_seconds'])}" for rung in rungs]
    return [*found, ("If nobody answers in time", ", then ".join([*next_, "it is rejected"]))]


def _span(seconds: float) -> str:
    start = datetime(2000, 1, 1)  # noqa: DTZ001 - only the distance is shown
    return timesince(start, start + timedelta(seconds=float(seconds)))


def why_not(asked: ApprovalRequest, person: Any, now: datetime) -> str:
    """Say why no button is offered; '' when the person may answer now."""
    if asked.state != ApprovalState.OPEN:
        return f"This is closed: {asked.closed_reason or asked.state.lower()}."
    if now >= asked.expires_at:
        return "The time to answer is over: it can no longer be decided."
    run = asked.run
    if run.ended_at is not None or run.ending_reason or now >= run.deadline_at:
        return f"The run is {run.word}: there is nothing left to decide."
    reason = refusal(asked, person)
    return f"{reason[:1].upper()}{reason[1:]}." if reason else ""


def shown_before(given: Mapping[str, str], asked: ApprovalRequest) -> dict[str, tuple[object, object]]:
    """Compare the facts that the posted page had shown with those that are true now.

    Somebody else's answer may have brought the change to light, so the request no longer has the old facts. What was
    posted as shown is believed only when it has the digest that was posted with it.
    """
    try:
        shown = json.loads(given["shown"])
        if not isinstance(shown, dict) or sha256(shown) != given["facts_digest"]:
            return {}
    except (ValueError, InvalidState, RecursionError):
        return {}
    return differences(shown, asked.binding)
