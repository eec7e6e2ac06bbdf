"""Who was shown what: the only writer of `RequestView`. Doors call it when they show a request; it decides nothing.

What was shown is named by the digest of the binding facts; `facts_at` finds them again after they have changed.
Source: specification S3.46.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from durableflows import clock
from durableflows.core.payload import JSON, check_text
from durableflows.errors import InvalidState, NotAllowed
from durableflows.models import ApprovalRequest, RequestView, RunEvent
from durableflows.models.compiled import insert_or_update
from durableflows.services.requests import request_for
from durableflows.transactions import database

DIGEST_LENGTH = 64


def note_shown(request_id: UUID | str, *, by: Any, facts_digest: str, door: str, origin: str = "") -> None:
    """Record that a person was shown the facts of a request. The same again moves the time of the last look.

    Raises           NotFoundError when the person may not see the request; NotAllowed when nobody looks; InvalidState
                     for a digest that is none
    Writes / Locks   RequestView, in one statement that two looks at once cannot do twice; locks nothing of the run
    Crash            before the commit nothing of it: the page was not shown either
    """
    if getattr(by, "pk", None) is None:
        raise NotAllowed("only a person looks at a request: say who, by=...")
    check_text(door, 40, "the door")
    check_text(origin, 200, "the origin")
    if len(facts_digest) != DIGEST_LENGTH or not facts_digest.isalnum():
        raise InvalidState("what was shown is named by the request's facts_digest")
    _note([request_for(request_id, by)], by, facts_digest, door, origin, clock.now())


def note_all_shown(requests: Iterable[ApprovalRequest], *, by: Any, at: datetime, door: str, origin: str = "") -> None:
    """The same for requests of one page, which the caller has read through `selectors`: one statement for all."""
    _note(list(requests), by, "", door, origin, at)


def _note(requests: list[ApprovalRequest], by: Any, digest: str, door: str, origin: str, now: datetime) -> None:
    rows = [
        RequestView(
            request=request,
            person=by,
            person_name=str(by.get_username())[:150],
            facts_digest=digest or request.facts_digest,
            door=door,
            origin=origin,
            first_at=now,
            last_at=now,
        )
        for request in sorted(requests, key=lambda one: one.pk)  # two who look at the same ones wait in one order
    ]
    insert_or_update(rows, database(), ("request", "person", "facts_digest", "door"), ("last_at", "origin"))


def facts_at(request: ApprovalRequest, digest: str) -> Mapping[str, JSON] | None:
    """The binding facts that a request asked about when they had this digest. None: it never did, as far as is known.

    Goes back from what it asks about now, by what the history says of each change. Masked as the history is.
    """
    facts: dict[str, JSON] = dict(request.binding)
    if digest == request.facts_digest:
        return facts
    changes = RunEvent.objects.using(database()).filter(run_id=request.run_id, kind="approval.facts_changed")
    for data in changes.order_by("-sequence").values_list("data", flat=True):
        was = data.get("was") if isinstance(data, dict) and data.get("request") == str(request.pk) else None
        if isinstance(was, dict):
            facts = _before(facts, was)
            if was.get("digest") == digest:
                return facts
    return None


def _before(facts: dict[str, JSON], was: Mapping[str, Any]) -> dict[str, JSON]:
    """The facts before a change: each that changed as it was, and none that came with it."""
    came, old = was.get("came") or [], was.get("facts") or {}
    return {name: value for name, value in facts.items() if name not in came} | old
