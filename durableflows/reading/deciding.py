"""What a page of one request says, and what becomes of an answer that is posted: the same for each kind of page.

GET and HEAD show, a POST with the CSRF token answers (R24). What counts is checked by `api.answer`, as for every door;
this file says its typed errors in words, and gathers what the templates show. It builds no response.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest

from durableflows import api, explain_rows, votes
from durableflows.core import log_lines
from durableflows.errors import DurableflowsError, FactsChanged, InvalidState, NotAllowed, TooLate
from durableflows.explain import explain_by
from durableflows.models import ApprovalDecision, ApprovalRequest
from durableflows.reading import edit_form
from durableflows.reading.answers import DecisionForm, acts_for, consequences, rules, shown_before, why_not
from durableflows.reading.around import read_around
from durableflows.reading.facts import shown_of
from durableflows.reading.looks import note_look
from durableflows.reading.standing import expires_words, now_of, standing_words, waiting

logger = log_lines.logger("durableflows.pages")

Context = dict[str, Any]
WORD = {"approve": "approved", "reject": "rejected"}


@dataclass(frozen=True, slots=True)
class Refused:
    """An answer that was not taken, and what is said of it: on the decision page, or where nothing is left to do on the
    page of the result.
    """

    status: int
    context: Context
    may_try_again: bool


def vote_of(asked: ApprovalRequest, person: Any) -> ApprovalDecision | None:
    """The answer of this person that counts, if there is one."""
    return asked.decisions.filter(actor_id=person.pk, voided_at__isnull=True).first()


def answer(request: HttpRequest, asked: ApprovalRequest, given: Mapping[str, str], *, door: str) -> bool:
    """Give a posted answer; True: the person had given the same before. Raises as `api.answer`."""
    before = vote_of(asked, request.user)
    api.answer(
        asked.pk,
        given["verdict"],
        by=request.user,
        facts_digest=given["facts_digest"],
        comment=given["comment"],
        edits=edit_form.given(asked, request.POST) if given["verdict"] == "approve" else None,
        door=door,
        origin=request.META.get("REMOTE_ADDR", ""),
    )
    return before is not None and before.verdict == given["verdict"]


def refused(request: HttpRequest, asked: ApprovalRequest, form: DecisionForm, error: DurableflowsError) -> Refused:
    """Say what a typed error means for the person; `asked`: read anew, after the error."""
    logger.warning("%s could not answer request %s: %s", request.user, asked.pk, error)
    match error:
        case NotAllowed():
            return Refused(403, _outcome(request, asked, "You may not decide this", error), may_try_again=False)
        case FactsChanged():
            changes = shown_before(form.cleaned_data, asked) or error.changes
            again = {"form": form, "error": error, "changes": sorted_changes(changes)}
            return Refused(409, again, may_try_again=True)
        case TooLate():
            return Refused(409, _outcome(request, asked, "Your answer came too late", error), may_try_again=False)
        case InvalidState(problems=problems) if problems:
            wrong = {"form": form, "edit_problems": dict(problems)}
            return Refused(422, wrong, may_try_again=True)
    return Refused(409, {"form": form, "error": error}, may_try_again=True)


def _outcome(request: HttpRequest, asked: ApprovalRequest, title: str, error: DurableflowsError) -> Context:
    return {"title": title, "error": error, "explanation": _explained(request, asked)}


def _explained(request: HttpRequest, asked: ApprovalRequest) -> api.Explanation:
    """Whoever may see the question may see how its run stands."""
    return explain_by(asked.run, explain_rows.read(asked.run, now_of(request)))


def sorted_changes(changes: Mapping[str, tuple[object, object]]) -> list[tuple[str, object, object]]:
    """Changes of facts as they are shown: name, before, now."""
    return [(name, *pair) for name, pair in sorted(changes.items())]


def decision(request: HttpRequest, asked: ApprovalRequest, more: Context, *, door: str) -> Context:
    """All that the decision page shows; `more`: the form that was posted, and what became of it. Records the look."""
    note_look(request, [asked], door)
    now = now_of(request)
    around = read_around(asked, request.user, now)
    counted, explanation = around.counted, explain_by(asked.run, around.story)
    lender, spent = acts_for(asked, around.standing, counted)
    return {
        "title": asked.title,
        "asked": asked,
        "form": DecisionForm(),
        "edits": edit_form.shown(asked, request.POST, more.get("edit_problems", {}), counted, request.user),
        "agreed": edit_form.agreed(asked, counted, request.user),
        "facts": shown_of(asked),
        "shown": json.dumps(asked.binding),
        "consequences": consequences(asked),
        "rules": rules(asked, around.titles),
        "reason": why_not(asked, around.standing, now) or spent,
        "acts_for": lender,
        "standing": standing_words(asked, now),
        "expires": expires_words(asked, now),
        "vote": next((one for one in counted if one.actor_id == request.user.pk), None),
        "decisions": around.decisions,
        "notes": around.notes,
        "looks": around.looks,
        "yes_count": votes.so_far(counted),
        # Whoever may see the question may see why it is asked.
        "explanation": explanation,
        "read_at": _read_at(asked, explanation),
        "now": now,
        **more,
    }


def _read_at(asked: ApprovalRequest, explanation: api.Explanation) -> datetime:
    """When the facts that are shown were computed: when it was asked, or when they were found to be others."""
    told = [line for line in explanation.lines if line.about and line.about.kind == "approval.facts_changed"]
    renewed = [line.at for line in told if line.about and line.about.data.get("request") == str(asked.pk)]
    return max([asked.created_at, *renewed])


def taken(request: HttpRequest, asked: ApprovalRequest, vote: ApprovalDecision) -> Context:
    """What the result page says of an answer that counts."""
    decisions = list(asked.decisions.all())
    counted = [one for one in decisions if one.voided_at is None]
    return {
        "title": f"You {WORD[vote.verdict]} this",
        "vote": vote,
        "decisions": decisions,
        "is_repeat": "again" in request.GET,
        "yes_count": votes.so_far(counted),
        "are_split": votes.are_split(counted),
        "explanation": _explained(request, asked),
    }


def result(request: HttpRequest, asked: ApprovalRequest, more: Context) -> Context:
    """All that the page after an answer shows, taken or not: what happened, what is next, and the next request."""
    following = waiting(request).exclude(pk=asked.pk).first()
    read = more if "decisions" in more else {"decisions": list(asked.decisions.all())}
    return {"asked": asked, "following": following, **read, **more}
