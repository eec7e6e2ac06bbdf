"""Answering several requests at once: first what each of them is, then what became of each, row by row.

GET shows the chosen ones with all their bound facts; a POST gives one answer to each, for the facts that were shown.
Each row goes through `api.answer` by itself: what is refused for one stops no other, and decides nothing (R25).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from durableflows import api
from durableflows.core import log_lines
from durableflows.errors import DurableflowsError, FactsChanged, NotFoundError, TooLate
from durableflows.models import ApprovalDecision, ApprovalRequest
from durableflows.reading.answers import DecisionForm, why_not
from durableflows.reading.facts import Shown, amount_of, shown_of
from durableflows.reading.looking import as_id
from durableflows.rights import Standing
from durableflows.transactions import is_away

logger = log_lines.logger("durableflows.admin")

DOOR = "admin, several at once"
MOST = 100
"""Requests that are answered at once."""
GONE = "It is not there, or none that you may see."
FAILED = "It has failed, and the log says why."


class AnswerToSeveral(DecisionForm):
    """One answer as it is posted for several requests: each of them brings the facts that were shown."""

    facts_digest = None  # type: ignore[assignment]
    shown = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A request before it is answered. `reason`: why this person may not answer it now, '' when nothing is known."""

    asked: ApprovalRequest
    facts: Shown
    reason: str

    @property
    def field(self) -> str:
        """What the form posts for it: which request, and which facts were shown."""
        return f"{self.asked.pk}:{self.asked.facts_digest}"


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a row: taken, again, late, refused, changed, failed, gone. `asked`: None when it is not seen."""

    outcome: str
    words: str
    asked: ApprovalRequest | None = None

    @property
    def word(self) -> str:
        """The outcome for a person."""
        return {"taken": "done", "again": "done before", "changed": "it has changed"}.get(self.outcome, "not done")

    @property
    def amount(self) -> str:
        """How much the request is about."""
        return amount_of(self.asked) if self.asked is not None else ""

    @property
    def tone(self) -> str:
        """The colour of the row."""
        return {"taken": "good", "again": "good", "changed": "look"}.get(self.outcome, "bad")


def chosen(requests: QuerySet[ApprovalRequest], ids: Iterable[str], person: Any, now: datetime) -> list[Chosen]:
    """The chosen requests that the person may see, soonest to expire first."""
    wanted = [found for text in list(ids)[:MOST] if (found := as_id(text)) is not None]
    rows = requests.filter(pk__in=wanted).select_related("step").order_by("expires_at", "id")
    standing, edited = Standing(person, now), _edited(wanted)
    return [Chosen(asked, shown_of(asked), why_not(asked, standing, now) or edited.get(asked.pk, "")) for asked in rows]


def _edited(wanted: Iterable[UUID]) -> dict[UUID, str]:
    """Which of them somebody has approved with changes: answered as they were asked, both would not count together."""
    rows = ApprovalDecision.objects.filter(request__in=wanted, verdict="approve", voided_at__isnull=True)
    words = "{} has approved it with changes: look at it on its own page."
    return {vote.request_id: words.format(vote.actor_name) for vote in rows if vote.edits}


def answer_all(
    requests: QuerySet[ApprovalRequest], fields: Iterable[str], given: AnswerToSeveral, person: Any, origin: str
) -> list[Done]:
    """Answer each row by itself, in the order in which it was shown."""
    pairs = list(_pairs(fields))
    found = {row.pk: row for row in requests.filter(pk__in=[pk for pk, _ in pairs]).select_related("step")}
    return [_answer(found.get(pk), digest, given, person, origin) for pk, digest in pairs]


def _answer(asked: ApprovalRequest | None, digest: str, given: AnswerToSeveral, person: Any, origin: str) -> Done:
    if asked is None:
        return Done("gone", GONE)
    verdict, comment = given.cleaned_data["verdict"], given.cleaned_data["comment"]
    is_repeat = asked.decisions.filter(actor_id=person.pk, verdict=verdict, voided_at__isnull=True).exists()
    try:
        after = api.answer(asked.pk, verdict, by=person, facts_digest=digest, comment=comment, door=DOOR, origin=origin)
    except NotFoundError:
        return Done("gone", GONE)
    except FactsChanged as error:
        return Done("changed", str(error), asked)
    except TooLate as error:
        return Done("late", str(error), asked)
    except DurableflowsError as error:
        logger.warning("%s could not answer request %s: %s", person, asked.pk, error)
        return Done("refused", str(error), asked)
    except Exception as error:  # a row that nobody can read keeps none of the others from being answered
        if is_away(error):
            raise
        logger.exception("the answer of %s to request %s has failed", person, asked.pk)
        return Done("failed", FAILED, asked)
    word = "approved" if verdict == "approve" else "rejected"
    if is_repeat:
        return Done("again", f"you had already {word} it; nothing was done again", after)
    more = "; more people must approve it" if after.state == "OPEN" else ""
    return Done("taken", f"you {word} it{more}", after)


def _pairs(fields: Iterable[str]) -> Iterator[tuple[UUID, str]]:
    """The rows of the form, each request once."""
    known: set[UUID] = set()
    for field in list(fields)[:MOST]:
        text, _, digest = field.partition(":")
        found = as_id(text)
        if found is not None and found not in known:
            known.add(found)
            yield found, digest
