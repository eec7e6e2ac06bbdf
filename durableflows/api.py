"""The verbs, for a project's own code. They need Django's app registry; declaring a workflow does not.

    api.start(Refund, {...}, key="refund:17", by=user)   joins the caller's transaction; the first step is sent after it
    api.get(run_id, by=user)
    api.cancel(run_id, by=user, reason="customer changed his mind")
    api.retry(run_id, by=user, reason="fixed the template")
    api.pause(run_id, by=user, reason="the provider asked for quiet"), api.resume(run_id, by=user, reason="it is over")
    api.extend(run_id, by=user, reason="he needs longer", deadline=timedelta(days=3), budget={"tool_calls": 5})
    api.edit(run_id, by=user, reason="the customer moved", changes={"address": "9 Elm Road"}, checkpoint=4)
    api.redrive(run_id, by=user, reason="the address was wrong", step="deliver", repeat=("post.send",))
    api.abandon(run_id, by=user, reason="the provider is gone", heir=colleague)
    api.preview("redrive", run_id, by=user, step="deliver")
    api.signal(run_id, "paid", {"amount": 5}, dedup_key=event_id)
    api.note_shown(request_id, by=user, facts_digest=shown, door="our page")
    api.answer(request_id, "approve", by=user, facts_digest=shown)
    api.reassign(request_id, colleague, by=user, reason="she knows the customer")
    api.ask_requester(request_id, "Which order?", by=user), api.reply(request_id, "The second.", by=requester)
    api.withdraw(request_id, by=requester, reason="not needed any more")
    api.delegate(colleague, by=user, starts=monday, until=friday, reason="I am away"), api.end_delegation(...)
    api.resolve_effect(effect_id, "happened", by=user, reason="seen in the dashboard", row_version=7, receipt={...})
    api.provider_event("payments", body["id"], body, kind=body["type"])
    api.explain(run_id, by=user)
    api.pause_provider("payments", by=user, reason="their status page says so"), api.resume_provider(...)

`by=None` means trusted code of the project itself. A reason is something to be seen; what looks like a secret in it,
or in a comment, is masked before it is stored. Every verb is one short transaction; none waits for a worker.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Model

from durableflows.core.declare import Workflow
from durableflows.core.payload import JSON
from durableflows.core.state import WorkflowState
from durableflows.errors import InvalidState
from durableflows.explain import Explanation, Line, explain_run
from durableflows.explain_words import Fact
from durableflows.models import ApprovalRequest, ProviderEvent, SideEffect, Signal, WorkflowRun
from durableflows.selectors import run_for
from durableflows.services import abandon as abandoning
from durableflows.services import (
    approvals,
    limits,
    looks,
    migrations,
    operations,
    provider_events,
    providers,
    reconcile,
    requests,
    runs,
    signals,
)
from durableflows.services import compensate as compensating
from durableflows.services import edit as editing
from durableflows.services import preview as previews
from durableflows.services import redrive as redriving
from durableflows.services.delegating import delegate, end_delegation
from durableflows.services.people import ask_requester, reassign, reply, withdraw
from durableflows.services.preview import Asked, Preview

__all__ = [
    "Explanation",
    "Fact",
    "Line",
    "Preview",
    "abandon",
    "answer",
    "ask_requester",
    "cancel",
    "compensate",
    "delegate",
    "edit",
    "end_delegation",
    "explain",
    "extend",
    "get",
    "may_answer",
    "migrate",
    "note_shown",
    "pause",
    "pause_provider",
    "preview",
    "provider_event",
    "reassign",
    "redrive",
    "reply",
    "resolve_effect",
    "resume",
    "resume_provider",
    "retry",
    "signal",
    "start",
    "withdraw",
]


def start(
    workflow: type[Workflow[Any]] | str,
    state: Mapping[str, object] | WorkflowState,
    *,
    key: str = "",
    by: Any = None,
    tenant: str = "",
    subject: Model | None = None,
    labels: Mapping[str, str] | None = None,
    version: int | None = None,
) -> WorkflowRun:
    """Start a run in the caller's transaction. A rollback leaves no run, no message and no mail.

    Shapes and units   key: business key, unique per tenant, '' for none; the same key with the same request returns
                       the run that exists, ended or not, also when a later version would be started now;
                       version: None for the highest. A transaction on another database than the engine's is not joined
    Raises             UnknownWorkflow, InvalidState (all problems), KeyConflict (same key, other request), NotAllowed
                       (somebody who does not act in the tenant)
    """
    definition = runs.definition_of(workflow, version)
    for what, value in (("state", state), ("labels", labels or {})):
        if not isinstance(value, Mapping | WorkflowState):
            raise InvalidState(f"{what} must be a mapping of names to values, not {type(value).__name__}")
    return runs.start(definition, state, key=key, by=by, tenant=tenant, subject=subject, labels=labels or {})


def get(run_id: UUID | str, *, by: Any = None) -> WorkflowRun:
    """One run that the person may see. Raises NotFoundError, also when it is somebody else's."""
    return run_for(run_id, by)


def cancel(run_id: UUID | str, *, by: Any = None, reason: str) -> WorkflowRun:
    """Ask for the end of a run. Nothing is sent any more; it is confirmed when nothing is in doubt or on its way.

    Raises   NotFoundError, NotAllowed, InvalidState without a reason; TooLate when it has finished. A second cancel
             changes nothing
    """
    return runs.cancel(run_id, by=by, reason=reason)


def compensate(run_id: UUID | str, *, by: Any = None, reason: str) -> WorkflowRun:
    """Undo what a run did, newest first, and end it as COMPENSATED; of one whose undo failed, what is left.

    What is in doubt is settled first; effects without `undo=` stay done. See docs/howto/undo.md.

    Raises   NotFoundError, NotAllowed, InvalidState without a reason; TooLate for a run that was abandoned, is in its
             clean-up, or has ended with nothing that can be undone. A second time changes nothing
    """
    return compensating.compensate(run_id, by=by, reason=reason)


def retry(run_id: UUID | str, *, by: Any = None, reason: str) -> WorkflowRun:
    """Let a parked run go on, or bring a scheduled retry forward.

    Raises   NotFoundError, NotAllowed, InvalidState without a reason; TooLate when it has ended, is ending, or nothing
             of it waits for a retry
    """
    return runs.retry(run_id, by=by, reason=reason)


def pause(run_id: UUID | str, *, by: Any = None, reason: str) -> WorkflowRun:
    """Let a run stand still until `resume`. What is under way ends and is recorded; nothing more begins or is sent.

    Raises   NotFoundError, NotAllowed, InvalidState without a reason; TooLate when it has ended, is ending, or is
             parked for another reason. A second pause changes nothing
    """
    return operations.pause(run_id, by=by, reason=reason)


def resume(run_id: UUID | str, *, by: Any = None, reason: str) -> WorkflowRun:
    """Let a paused run go on where it stands.

    Raises   NotFoundError, NotAllowed, InvalidState without a reason; TooLate when it has ended, is ending, or is
             parked for another reason: that is for `retry`. A run that goes on already is left alone
    """
    return operations.resume(run_id, by=by, reason=reason)


def extend(
    run_id: UUID | str,
    *,
    by: Any = None,
    reason: str,
    deadline: timedelta | datetime | None = None,
    budget: Mapping[str, object] | None = None,
) -> WorkflowRun:
    """Give a run more time or budget. One that its deadline or a budget has ended goes on where it stood.

    Shapes and units   deadline: a span, from the old deadline or from now if that has passed; or a moment;
                       budget: name -> how much more, {"tool_calls": 5, "cost_usd": "1.50", "idle": timedelta(hours=1)}
    Raises             NotFoundError, NotAllowed; InvalidState for what is no extension, or does not let the run go on;
                       TooLate when its limits matter no more
    """
    return limits.extend(run_id, by=by, reason=reason, deadline=deadline, budget=_mapping("budget", budget))


def edit(
    run_id: UUID | str, *, by: Any = None, reason: str, changes: Mapping[str, object], checkpoint: int | None = None
) -> WorkflowRun:
    """Change fields of the state of a run that stands still: parked, paused, or ended in a way that may go on.

    Shapes and units   changes: name -> value, checked with the rest of the state; checkpoint: `checkpoint_sequence` as
                       it was shown, None: as it is now
    Raises             NotFoundError, NotAllowed; InvalidState for what does not fit, a secret, or a state that was
                       changed from outside; TooLate for a run that goes on or is final, while something of it is
                       unsettled, and for another checkpoint. The same values again change nothing
    """
    given = _mapping("changes", changes)
    return editing.edit(run_id, by=by, reason=reason, changes=given, checkpoint=checkpoint)


def redrive(
    run_id: UUID | str, *, by: Any = None, reason: str, step: str, item: str = "", repeat: Collection[str] = ()
) -> WorkflowRun:
    """Let a failed or parked run go on from a step that it has been at. What is confirmed gives its receipt again.

    A clean-up that was not done is done again from one of its steps, and the run ends as it did.

    Shapes and units   item: key of the item, for a step of `each`; repeat: names of confirmed effects to do once more
    Raises             NotFoundError, NotAllowed, InvalidState for a step it has not been at, or an effect that did not
                       happen there; TooLate for a run that goes on, has another end, or has something unsettled
    """
    return redriving.redrive(run_id, by=by, reason=reason, step=step, item=item, repeat=_names("repeat", repeat))


def abandon(run_id: UUID | str, *, by: Any = None, reason: str, heir: Any) -> WorkflowRun:
    """End a run at once, whatever of it is open. `heir`, a person who may operate it, settles what is left.

    Raises   NotFoundError, NotAllowed, InvalidState without such an heir; TooLate when it has ended
    """
    return abandoning.abandon(run_id, by=by, reason=reason, heir=heir)


def preview(
    verb: str,
    run_id: UUID | str,
    *,
    by: Any = None,
    deadline: timedelta | datetime | None = None,
    budget: Mapping[str, object] | None = None,
    step: str = "",
    item: str = "",
    repeat: Collection[str] = (),
    heir: Any = None,
    changes: Mapping[str, object] | None = None,
    checkpoint: int | None = None,
    version: int | None = None,
) -> Preview:
    """Say what a verb would close, begin and repeat, what is certain and unknown, and how much money that is.

    verb     cancel, compensate, pause, resume, retry, extend, edit, redrive, abandon or migrate, with the arguments
             that it would be given
    Raises   NotFoundError; InvalidState for another verb. What would be refused is said in `refused`
    """
    more, new = _mapping("budget", budget), _mapping("changes", changes)
    asked = Asked(by, deadline, more, step, item, _names("repeat", repeat), heir, new, checkpoint, version)
    return previews.preview(verb, run_id, asked)


def _mapping(what: str, value: Mapping[str, object] | None) -> Mapping[str, object]:
    if value is not None and not isinstance(value, Mapping):
        raise InvalidState(f"{what} must be a mapping of names to values, not {type(value).__name__}")
    return value or {}


def _names(what: str, value: Collection[str]) -> Collection[str]:
    # A text is a collection of letters.
    if isinstance(value, str) or not isinstance(value, Collection):
        raise InvalidState(f"{what} must be a collection of names, such as ('payments.refund',)")
    return value


def signal(run_id: UUID | str, name: str, payload: object = None, *, dedup_key: str = "", by: Any = None) -> Signal:
    """Send a message to a run: to the step that waits for this name, or to the next one that will.

    Shapes and units   payload: a value that can be written as JSON; dedup_key: the same key again is dropped quietly
    Raises             NotFoundError, NotAllowed, InvalidState, KeyConflict; TooLate when the run has ended or is ending
    """
    return signals.signal(run_id, name, payload, dedup_key=dedup_key, by=by)


def migrate(run_id: UUID | str, *, by: Any = None, reason: str, version: int | None = None) -> WorkflowRun:
    """Let a run go on under a newer version of its workflow, as that one declares it; None: the highest it can reach.

    Raises   NotFoundError, NotAllowed, TooLate (ended, ending, or a worker is at it), InvalidState (no way leads there,
             or no reason is given)
    """
    return migrations.migrate(run_id, by=by, reason=reason, version=version)


def answer(
    request_id: UUID | str,
    verdict: str,
    *,
    by: Any,
    facts_digest: str,
    comment: str = "",
    edits: Mapping[str, object] | None = None,
    door: str = "api",
    origin: str = "",
) -> ApprovalRequest:
    """Answer a request: "approve" or "reject", for exactly the facts whose digest was shown.

    Shapes and units   edits: name -> value, what is approved instead, where the approval declares `edits=`; what is
                       left out stays as it was asked
    Raises             NotFoundError, NotAllowed, AlreadyDecided, FactsChanged, TooLate; InvalidState for edits out of
                       bounds. The same answer again is a quiet no-op
    """
    given = approvals.Answer(verdict, by, facts_digest, comment, door, origin, edits or {})
    return approvals.answer(request_id, given)


def may_answer(request_id: UUID | str, *, by: Any) -> bool:
    """May the person answer this request as it stands? For a page of the project's own that offers the way to it.

    By right, group, name or a right that was lent, in the request's tenant, and not about one of the own.
    """
    return requests.may_answer(request_id, by)


def note_shown(request_id: UUID | str, *, by: Any, facts_digest: str, door: str = "api", origin: str = "") -> None:
    """Record that a person was shown a request: a page of the project's own calls it when it shows one (GET included).

    Raises   NotFoundError, NotAllowed when nobody is logged in, InvalidState. The same again moves the last look's time
    """
    looks.note_shown(request_id, by=by, facts_digest=facts_digest, door=door, origin=origin)


def resolve_effect(
    effect_id: UUID | str,
    verdict: str,
    *,
    by: Any = None,
    reason: str,
    row_version: int,
    receipt: Mapping[str, JSON] | JSON = None,
) -> SideEffect:
    """Say what happened with an effect in doubt: "happened" (with a receipt), "did_not_happen", "ask_again".

    Of what contradicts itself: "seen". Of what could not be undone, when the run has ended: "undone", by hand.

    Raises   NotFoundError, NotAllowed, InvalidState, TooLate (the row moved on, or a request may still arrive)
    """
    given = dict(receipt) if isinstance(receipt, Mapping) else receipt
    if not isinstance(given, dict | list | str | int | float | None):
        raise InvalidState(
            f"a receipt is given as JSON, as its effect would have returned it, not as {type(given).__name__}"
        )
    return reconcile.resolve_effect(effect_id, verdict, by=by, reason=reason, row_version=row_version, receipt=given)


def provider_event(
    provider: str, event_id: str, body: Mapping[str, Any], *, kind: str = "", happened_at: datetime | None = None
) -> ProviderEvent:
    """Take what a provider tells on its own, once for each event id; copies, early and late ones are harmless.

    For trusted code that knows where the body is from; `durableflows.webhooks` is the door that proves it. Stored
    first, then judged: at once, or after the caller's transaction, or by a sweep.

    Shapes and units   body: as the effect's `event` reads it; kind, happened_at: the provider's words for people
    Raises             InvalidState for what cannot be kept: no id, too large, no JSON
    """
    return provider_events.take(provider, event_id, body, kind=kind, happened_at=happened_at)


def explain(run_id: UUID | str, *, by: Any = None) -> Explanation:
    """Say in plain sentences what happened, what is certain, what is unknown, and what comes next and when."""
    return explain_run(run_for(run_id, by))


def pause_provider(provider: str, *, by: Any = None, reason: str) -> None:
    """Send nothing more to a provider until `resume_provider`. Steps that need it wait; nothing of them is charged.

    Raises   NotFoundError for a provider that nothing names, NotAllowed, InvalidState without a reason. A second pause
             changes nothing
    """
    providers.pause(provider, by=by, reason=reason)


def resume_provider(provider: str, *, by: Any = None, reason: str) -> None:
    """Let requests to a provider leave again, whoever or whatever has stopped them: the steps that wait go on.

    Raises   as `pause_provider`. One that is not stopped is left alone
    """
    providers.resume(provider, by=by, reason=reason)
