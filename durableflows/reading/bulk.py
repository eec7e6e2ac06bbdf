"""The same verb on several runs: what it would do to each, and what became of each. Writes nothing itself.

Each run is a transaction of its own: what one of them refuses keeps none of the others from being done.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.http import HttpRequest

from durableflows.core import log_lines
from durableflows.core.money import Money
from durableflows.core.operate import sums
from durableflows.core.payload import sha256
from durableflows.errors import DurableflowsError
from durableflows.explain_words import full_stop
from durableflows.models import WorkflowRun
from durableflows.reading.acting import Looked, do, look, may, problems
from durableflows.reading.looking import as_id
from durableflows.reading.runs import visible
from durableflows.reading.verbs import IN_BULK, VERBS, ReasonForm, Verb
from durableflows.reading.window import PAGE
from durableflows.transactions import is_away

logger = log_lines.logger("durableflows.pages")

Context = dict[str, Any]
DONE, CHANGED, REFUSED = "good", "look", "bad"
FAILED = "Not done: it has failed, and the log says why."


@dataclass(frozen=True, slots=True)
class Row:
    """One run: what the verb would do to it, and what became of it. `digest`: of the preview that is shown."""

    run: WorkflowRun
    looked: Looked
    digest: str
    result: str = ""
    tone: str = ""


def looked_at(request: HttpRequest, verb: Verb, ids: Sequence[UUID]) -> Iterator[Row]:
    """Each run of these that the person may see, in this order, with what the verb would do to it."""
    found = {run.pk: run for run in visible(request).filter(pk__in=ids)}
    for run_id in ids:
        if run_id in found:
            looked = _look(found[run_id], verb.name, request.user)
            yield Row(found[run_id], looked, sha256(looked.text))


def _look(run: WorkflowRun, verb: str, person: Any) -> Looked:
    if not may(verb, run, person):
        return Looked("You may not do this with it: durableflows.operate_run is needed, in its tenant.", (), "")
    try:
        return look(verb, run, person, {})
    except Exception as error:  # noqa: BLE001 - a row that nobody can read keeps none of the others from being looked at
        return Looked(_failed(verb, run, error), (), "")


def _failed(verb: str, run: WorkflowRun, error: Exception) -> str:
    """Say that it failed, and log why. Raises the error when the database is away: then it is so for all."""
    if is_away(error):
        raise error
    logger.error("%s of run %s has failed", verb, run.pk, exc_info=error)
    return FAILED


def carried_out(request: HttpRequest, verb: Verb, row: Row, shown: str, reason: str) -> Row:
    """Do it to one run, where its preview is still the one that was shown, and say what became of it."""
    tone, result = _do(request, verb, row, shown, reason)
    return replace(row, result=result, tone=tone)


def _do(request: HttpRequest, verb: Verb, row: Row, shown: str, reason: str) -> tuple[str, str]:
    if row.looked.refused:
        return REFUSED, row.looked.refused
    if shown != row.digest:
        return CHANGED, "Not done: it has changed since you looked. Look at it again."
    try:
        do(verb.name, row.run, request.user, reason, {})
    except DurableflowsError as error:
        return REFUSED, full_stop(str(error))
    except Exception as error:  # noqa: BLE001 - nor from being done
        return REFUSED, _failed(verb.name, row.run, error)
    return DONE, verb.did


class Bulk:
    """A verb on the runs that were chosen; those that the person may not see are not there."""

    def __init__(self, request: HttpRequest) -> None:
        given = request.POST if request.method == "POST" else request.GET
        self.request, self.back = request, given.get("back", "")
        name = given.get("verb", "")
        self.verb: Verb | None = VERBS[name] if name in IN_BULK else None
        ids = list(dict.fromkeys(one for text in given.getlist("run") if (one := as_id(text)) is not None))
        self.is_cut = len(ids) > PAGE
        self.ids: list[UUID] = ids[:PAGE]
        self.reason = ReasonForm(request.POST if request.method == "POST" else None)

    def rows(self) -> Iterator[Row]:
        """Each run with its preview, in the order in which they were chosen."""
        assert self.verb is not None
        return looked_at(self.request, self.verb, self.ids)

    def done(self) -> Iterator[Row]:
        """Do it to one after the other, where the preview is still the one that was shown."""
        assert self.verb is not None
        reason = self.reason.cleaned_data["reason"]
        for row in self.rows():
            yield carried_out(self.request, self.verb, row, self.request.POST.get(f"shown-{row.run.pk}", ""), reason)

    def context(self, rows: list[Row]) -> Context:
        """All that the page shows."""
        can = [row for row in rows if not row.looked.refused]
        return {
            "verb": self.verb,
            "rows": rows,
            "can_count": len(can),
            "reason": self.reason,
            "problems": list(problems(self.reason)),
            "back": self.back if self.back.startswith("?") else "",
            "is_cut": self.is_cut,
            "most": PAGE,
            "money": list(_money(can)),
        }


def _money(rows: list[Row]) -> Iterator[tuple[str, tuple[Money, ...]]]:
    """The sums of all rows, by what is known of them."""
    names = dict.fromkeys(part.words for row in rows for part in row.looked.parts if part.money)
    for words in names:
        parts = [part for row in rows for part in row.looked.parts if part.words == words]
        yield words, sums(amount for part in parts for amount in part.money)
