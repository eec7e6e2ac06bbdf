"""Is what people were asked, and what they answered, what the histories say? (P9, P13) Reads only.

An answer's row has no seal: the event that was written with it says who, what and when.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from durableflows.doctor.findings import Found
from durableflows.doctor.rows import CHUNK, digest_of
from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, WorkflowRun
from durableflows.transactions import database


class Answer(NamedTuple):
    """Who said what, when, to which request. `edits`: digest of what was changed, '' for nothing."""

    run_id: UUID
    request_id: str
    actor_name: str
    verdict: str
    at: datetime
    edits: str = ""

    def __str__(self) -> str:
        return f"{self.actor_name}'s {self.verdict} of {self.at:%Y-%m-%d %H:%M:%S} (UTC)"


def wrong_answers(runs: Sequence[WorkflowRun]) -> Iterator[Found]:
    """Each answer that only its row or only the history knows, and each request that is not about its own digest."""
    ids = [run.pk for run in runs]
    kept, told = set(_kept(ids)), set(_told(ids))
    for one in sorted(kept - told):
        yield "answer-changed", one.run_id, f"{one} is not in the history"
    for one in sorted(told - kept):
        yield "answer-changed", one.run_id, f"{one} is in the history, and no row says it"
    requests = ApprovalRequest.objects.using(database()).filter(run__in=ids).order_by("run_id", "id")
    for request in requests.only("run_id", "title", "binding", "facts_digest").iterator(chunk_size=CHUNK):
        if digest_of(request.binding) != request.facts_digest:
            yield "request-changed", request.run_id, f"the facts of the request {request.title!r} are not those asked"


def _kept(ids: Sequence[UUID]) -> Iterator[Answer]:
    rows = ApprovalDecision.objects.using(database()).filter(request__run__in=ids)
    names = ("request__run_id", "request_id", "actor_name", "verdict", "at", "edits")
    for run_id, request_id, actor_name, verdict, at, edits in rows.values_list(*names):
        yield Answer(run_id, str(request_id), actor_name, verdict, at, digest_of(edits) if edits else "")


def _told(ids: Sequence[UUID]) -> Iterator[Answer]:
    rows = RunEvent.objects.using(database()).filter(run__in=ids, kind="approval.answered")
    for run_id, data, actor_name, at in rows.values_list("run_id", "data", "actor_name", "at"):
        if isinstance(data, dict):
            request, verdict = str(data.get("request")), str(data.get("verdict"))
            yield Answer(run_id, request, actor_name, verdict, at, str(data.get("edits_sha256") or ""))
