"""How far a request is, for who asked: whom it waits for since when, to whom it goes and when, how it ended."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from durableflows.core.states import ApprovalState
from durableflows.explain_words import full_stop, moment, when
from durableflows.models import ApprovalRequest
from durableflows.reading.who import Asked, asked_later, asked_now, names_of


@dataclass(frozen=True, slots=True)
class Progress:
    """`sentence`: where it stands; `coming`: what follows when nobody answers, soonest first."""

    sentence: str
    coming: tuple[str, ...] = ()


def progress_of(asked: ApprovalRequest, now: datetime) -> Progress:
    """Say how far a request is."""
    if asked.state != ApprovalState.OPEN:
        return Progress(_end(asked, now))
    later, those = asked_later(asked), asked_now(asked)
    names = names_of([those, *later])
    sentence = f"Waiting for {those.words(names)} since {moment(_since(asked), now)}"
    return Progress(full_stop(f"{sentence}{_votes(asked)}"), tuple(_coming(asked, later, names, now)))


def _since(asked: ApprovalRequest) -> datetime:
    """Since when those are asked who are asked now."""
    return asked.created_at


def _votes(asked: ApprovalRequest) -> str:
    if asked.quorum == 1:
        return ""
    yes = sum(one.verdict == "approve" and one.voided_at is None for one in asked.decisions.all())
    return f"; {yes} of {asked.quorum} have approved"


def _coming(asked: ApprovalRequest, later: list[Asked], names: dict[str, str], now: datetime) -> list[str]:
    """What follows when nobody answers. The time of each rung begins with the end of the one before."""
    at, said = asked.expires_at, []
    for those, rung in zip(later, asked.ladder[asked.ladder_position :], strict=True):
        said.append(f"If nobody answers, it goes to {those.words(names)} {when(at, now)}.")
        at += timedelta(seconds=float(rung["expires_seconds"]))
    return [*said, f"If nobody answers by then, it is rejected {when(at, now)}."]


def _end(asked: ApprovalRequest, now: datetime) -> str:
    at = f" {when(asked.closed_at, now)}" if asked.closed_at else ""
    counted = [one for one in asked.decisions.all() if one.voided_at is None]
    who = ", ".join(one.actor_name for one in counted)
    match asked.state:
        case ApprovalState.APPROVED:
            return f"Approved{at} by {who}."
        case ApprovalState.REJECTED:
            return f"Rejected{at} by {who}."
        case ApprovalState.EXPIRED:
            return f"Expired{at}: nobody answered in time."
    return full_stop(f"Closed{at} without a decision: {asked.closed_reason}")
