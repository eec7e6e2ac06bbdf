"""How far a request is, for who asked: whom it waits for since when, to whom it goes and when, how it ended."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from durableflows import votes
from durableflows.core.approval import Rung
from durableflows.core.states import ApprovalState
from durableflows.core.until import ends_at
from durableflows.explain_words import full_stop, moment, when
from durableflows.models import ApprovalDecision, ApprovalRequest, RequestNote
from durableflows.reading.who import asked_after, rungs_of, titles_of
from durableflows.templatetags.durableflows import changed


@dataclass(frozen=True, slots=True)
class Progress:
    """`sentence`: where it stands; `coming`: what follows when nobody answers, soonest first."""

    sentence: str
    coming: tuple[str, ...] = ()


def progress_of(asked: ApprovalRequest, notes: Iterable[RequestNote], now: datetime) -> Progress:
    """Say how far a request is. `notes`: what people have said to each other about it."""
    withdrawn = next((note for note in notes if note.kind == RequestNote.WITHDRAWN), None)
    if withdrawn is not None:
        return Progress(f"Withdrawn {when(withdrawn.at, now)} by {withdrawn.author_name}.")
    if asked.state != ApprovalState.OPEN:
        return Progress(_end(asked, now))
    by, later = asked.asked_of, rungs_of(asked)
    if by is None:
        return Progress("Waiting for nobody: the rules ask nobody about this.")
    titles = titles_of(asked_after(asked))
    names = {permission: f"“{title}”" for permission, title in titles.items()}
    sentence = f"Waiting for {by.words(names)} since {moment(asked.asked_at or asked.created_at, now)}"
    return Progress(full_stop(f"{sentence}{_votes(asked)}"), tuple(_coming(asked, later, names, now)))


def _votes(asked: ApprovalRequest) -> str:
    if asked.quorum == 1:
        return ""
    yes = votes.so_far(one for one in asked.decisions.all() if one.voided_at is None)
    return f"; {yes} of {asked.quorum} have approved{' the same' if asked.edit_schema else ''}"


def _coming(asked: ApprovalRequest, later: list[Rung], names: dict[str, str], now: datetime) -> list[str]:
    """What follows when nobody answers. The time of each rung begins with the end of the one before."""
    at, said = asked.expires_at, []
    for rung in later:
        said.append(f"If nobody answers, it goes to {rung.by.words(names)} {when(at, now)}.")
        at = ends_at(rung.expires, at)
    end = f"goes on with “{asked.fallback.replace('_', ' ')}”" if asked.fallback else "is rejected"
    return [*said, f"If nobody answers{' by then' if said else ''}, it {end} {when(at, now)}."]


def _end(asked: ApprovalRequest, now: datetime) -> str:
    at = f" {when(asked.closed_at, now)}" if asked.closed_at else ""
    counted = [one for one in asked.decisions.all() if one.voided_at is None]
    who = ", ".join(one.actor_name for one in counted)
    match asked.state:
        case ApprovalState.APPROVED:
            return full_stop(f"Approved{at} by {who}{_changes(counted)}")
        case ApprovalState.REJECTED:
            return f"Rejected{at} by {who}."
        case ApprovalState.EXPIRED:
            return f"Expired{at}: nobody answered in time."
    return full_stop(f"Closed{at} without a decision: {asked.closed_reason}")


def _changes(counted: list[ApprovalDecision]) -> str:
    """What was approved instead of what was asked."""
    said = next((changed(one) for one in reversed(counted) if one.edits), [])
    return f", with changes: {', '.join(f'{name} {value}' for name, value in said)}" if said else ""
