"""What the decision page shows around the facts: the form, what follows from each answer, the rules, and why there is
no button. Reads declarations and one request; decides nothing.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils.timesince import timesince

from durableflows import votes
from durableflows.core import free_text, registry, until
from durableflows.core.approvers import Approvers
from durableflows.core.definition import StepDefinition, WorkflowDefinition
from durableflows.core.payload import parsed, sha256
from durableflows.core.states import ApprovalState
from durableflows.core.until import Expires
from durableflows.errors import InvalidDefinition, InvalidState
from durableflows.explain_words import full_stop
from durableflows.models import ApprovalDecision, ApprovalRequest
from durableflows.reading.who import names_of, rungs_of
from durableflows.rights import Standing, shown_to
from durableflows.selectors import refusal
from durableflows.services.requests import differences


class DecisionForm(forms.Form):
    """An answer as it is posted: the verdict, the digest of what was shown, and the shown facts themselves."""

    verdict = forms.ChoiceField(
        choices=[("approve", "Approve"), ("reject", "Reject")],
        error_messages={"required": "Choose approve or reject.", "invalid_choice": "Choose approve or reject."},
    )
    comment = forms.CharField(required=False, max_length=free_text.LONGEST, widget=forms.Textarea)
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
    yes = f"{_goes_on(definition, spec.approved)}. Before anything is sent, the facts and your right are checked again."
    return [("Approve", yes), ("Reject", f"{_goes_on(definition, spec.rejected)}.")]


def _goes_on(definition: WorkflowDefinition, name: str) -> str:
    """Follow the steps from here as far as there is only one way."""
    step, seen = definition.step(name), {name}
    text = f"The run goes on with {_does(step)}"
    while len(step.to) == 1 and step.to[0] not in seen:
        step = definition.step(step.to[0])
        seen.add(step.name)
        text = f"{text}, then {_does(step)}"
    return f"{text}, and ends" if step.end else text


def _does(step: StepDefinition) -> str:
    calls = " and ".join(f"{effect.name} at {effect.provider}" for effect in step.effects)
    name = f"“{step.name.replace('_', ' ')}”"
    return f"{name}, which calls {calls}" if calls else name


def rules(asked: ApprovalRequest, titles: Mapping[str, str]) -> list[tuple[str, str]]:
    """Say who may decide, how many must, and what happens when nobody does. `titles`: what permissions are called."""
    by, later = asked.asked_of, rungs_of(asked)
    if by is None:
        return [("Who may decide", f"{asked.closed_reason[:1].upper()}{asked.closed_reason[1:]}")]
    names = names_of(titles)
    people = "One person" if asked.quorum == 1 else f"{asked.quorum} people"
    who = by.words(names)
    found = [
        ("Who may decide", f"{_begin(who, by)}{f', {asked.band}' if asked.band else ''}"),
        ("How many must approve", f"{people}; one rejection is enough to reject"),
    ]
    if asked.exclude_requester and asked.requester_name:  # what the system has asked for keeps nobody out
        found.append(("Who may not", f"{_kept_out(asked)}, not even as an administrator"))
    next_ = [f"it goes to {rung.by.words(names)} {_time(rung.expires)}" for rung in later]
    end = f"the run goes on with “{asked.fallback.replace('_', ' ')}”" if asked.fallback else "it is rejected"
    last = ", then ".join([*next_, end])
    return [*found, ("If nobody answers in time", f"{last[0].upper()}{last[1:]}")]


def _begin(who: str, by: Approvers) -> str:
    """Begin with a capital letter, unless it is somebody's name."""
    return f"{who[:1].upper()}{who[1:]}" if by.permission or by.groups else who


def _kept_out(asked: ApprovalRequest) -> str:
    who = f"{asked.requester_name}, who asked for it"
    return f"{who}, and whoever acts for {asked.requester_name}" if asked.exclude_delegate else who


def _time(expires: Expires) -> str:
    if not isinstance(expires, timedelta):
        return until.words(expires)
    start = datetime(2000, 1, 1)  # noqa: DTZ001 - only the distance is shown
    return f"for {timesince(start, start + expires)}"


def why_not(asked: ApprovalRequest, person: Any, now: datetime) -> str:
    """Say why no button is offered; '' when the person may answer now. `person`: for many requests a `Standing`."""
    if asked.state != ApprovalState.OPEN:
        return full_stop(f"This is closed: {asked.closed_reason or asked.state.lower()}")
    if now >= asked.expires_at:
        return "The time to answer is over: it can no longer be decided."
    run = asked.run
    if run.ended_at is not None or run.ending_reason or now >= run.deadline_at:
        return f"The run is {run.word}: there is nothing left to decide."
    reason = refusal(asked, person if isinstance(person, Standing) else shown_to(person, now))
    return full_stop(f"{reason[:1].upper()}{reason[1:]}")


def acts_for(asked: ApprovalRequest, standing: Standing, given: Iterable[ApprovalDecision]) -> tuple[str, str]:
    """For whom the person would answer, who has no right of the own; '' where there is one, or none at all. And why
    there is no button for who has lent rights alone, when they are used.

    given   the answers to it that stand
    """
    by = asked.asked_of
    rights = standing.rights(asked, by) if by is not None and asked.state == ApprovalState.OPEN else []
    right = votes.unused(rights, standing.person, given)
    if right is None:
        return "", full_stop(f"It{votes.spent_words(rights)[2:]}") if rights else ""
    return "" if right.giver is None else str(right.giver), ""


def shown_before(given: Mapping[str, str], asked: ApprovalRequest) -> dict[str, tuple[object, object]]:
    """Compare the facts that the posted page had shown with those that are true now.

    Somebody else's answer may have brought the change to light, so the request no longer has the old facts. What was
    posted as shown is believed only when it has the digest that was posted with it.
    """
    try:
        shown = parsed(given["shown"])
        if not isinstance(shown, dict) or sha256(shown) != given["facts_digest"]:
            return {}
    except (ValueError, InvalidState):
        return {}
    return differences(shown, asked.binding)
