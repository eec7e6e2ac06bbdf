"""The history of a refund in the desk's own words: each event that the engine explains, said as an agent would.

Pure: lines in, lines out. An event that nothing here knows keeps the engine's sentence, so none is lost.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from customer_ops.situation import in_words, step_name
from durableflows.api import Fact, Line

SHOWN = 6
"""Lines that stand open; older ones are folded away."""

Told = tuple[str, str] | None
"""Text and kind; None: another line says it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a timeline. `kind`: done, waiting, problem, certain, unknown, note."""

    at: datetime
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """What happened, oldest first: `folded` behind a fold, `open` before everybody's eyes."""

    folded: list[Entry]
    open: list[Entry]


def tell(lines: Iterable[Line]) -> Timeline:
    """Say a run's history in the desk's words, folded when it is long."""
    entries = [entry for line in lines if (entry := _entry(line)) is not None]
    cut = len(entries) - SHOWN if len(entries) > SHOWN + 2 else 0
    return Timeline(entries[:cut], entries[cut:])


def _entry(line: Line) -> Entry | None:
    if line.about is None or line.about.kind not in _TELLERS:
        return Entry(line.at, in_words(line.text), line.kind)
    told = _TELLERS[line.about.kind](line.about, line)
    if told is None:
        return None
    text, kind = told
    return Entry(line.at, text if line.about.actor else in_words(text), kind)  # what a person wrote stays as it is


def _with(text: str, more: str) -> str:
    return f"{text}: {more}" if more else text


def _ready(fact: Fact, line: Line) -> Told:
    reason = fact.text("reason")
    return (_with(f"{step_name(fact.step)} goes on", reason), "note") if reason else (line.text, line.kind)


def _claimed(fact: Fact, line: Line) -> Told:
    attempt = fact.data.get("attempt")
    is_again = isinstance(attempt, int) and attempt > 1
    return (f"{step_name(fact.step)} was tried again (attempt {attempt})", "note") if is_again else None


def _succeeded(fact: Fact, line: Line) -> Told:
    if fact.step == "assess":
        return ("No manager is needed", "done") if fact.data.get("next") == ["pay"] else None
    return ("Given up", "problem") if fact.step == "give_up" else None  # of an effect, its answer is the line


def _retry(fact: Fact, line: Line) -> Told:
    why = fact.text("reason") or fact.text("error")
    return _with(f"{step_name(fact.step)} did not work, and will be tried again", why), "problem"


def _failed(fact: Fact, line: Line) -> Told:
    return _with(f"{step_name(fact.step)} failed for good", fact.text("error") or fact.text("reason")), "problem"


def _in_doubt(fact: Fact, line: Line) -> Told:
    if fact.step in ("pay", "tell_customer", "ask_agent", "hand_over"):
        return None  # the lost answer itself is a line
    return _with(f"{step_name(fact.step)}: it is not known what happened", fact.text("reason")), "unknown"


def _lost(fact: Fact, line: Line) -> Told:
    return f"{step_name(fact.step)} was interrupted: its worker died. It is looked into", "problem"


def _waiting(fact: Fact, line: Line) -> Told:
    return _with(f"{step_name(fact.step)} waits", fact.text("reason")), "waiting"


def _needs_person(fact: Fact, line: Line) -> Told:
    return _with(f"{step_name(fact.step)} needs a person", fact.text("reason")), "problem"


def _dispatched(fact: Fact, line: Line) -> Told:
    is_again = fact.data.get("send") != 1
    again = " again, under the same key" if is_again else ""
    quiet = _SENT_QUIETLY.get(fact.text("effect"))
    if quiet is not None:
        return (f"{quiet}{again}", "done") if is_again or fact.is_open else None
    if fact.text("effect") != "payments.refund":
        return line.text, line.kind
    waits = "; its answer is not here yet" if fact.is_open else ""
    return f"Sent to the payment provider{again}{waits}", "unknown" if fact.is_open else "done"


def _recorded(fact: Fact, line: Line) -> Told:
    outcomes = _OUTCOMES.get(fact.text("effect"), {})
    text, kind = outcomes.get(fact.text("state"), (line.text, line.kind))
    if fact.text("state") == "UNKNOWN" and fact.data.get("answer") != "unknown":
        return _doubt(fact, line)
    if fact.text("state") != "CONFIRMED" or outcomes in (_OF_MAIL, _OF_RECORD, {}):
        return text, kind
    looked_up = " (found when the provider was asked)" if fact.data.get("by") == "lookup" else ""
    return f"{text}{f', {fact.reference}' if fact.reference else ''}{looked_up}", kind


_SENT_QUIETLY = {
    "mail.send": "Mail to the customer sent",
    "tickets.create": "Ticket sent to the help desk",
    "customers.give_address_up": "The customer’s record was changed",
}
"""What the answer alone says, unless it was sent again or has no answer yet."""

_OF_PAYMENT = {
    "CONFIRMED": ("Refunded", "certain"),
    "REJECTED": ("Refused by the payment provider: no money has left", "certain"),
    "ACCEPTED": ("Taken by the payment provider, which is not done with it", "waiting"),
    "PLANNED": ("It did not reach the payment provider: no money has left", "certain"),
    "UNKNOWN": ("The provider’s answer was lost: looking it up", "unknown"),
}
_OF_MAIL = {
    "CONFIRMED": ("Customer told by mail", "certain"),
    "REJECTED": ("The mail to the customer was refused by the mail server", "problem"),
    "PLANNED": ("The mail did not reach the mail server", "certain"),
    "UNKNOWN": ("The mail server’s answer was lost: the customer may have got the mail", "unknown"),
}

_OF_TICKET = {
    "CONFIRMED": ("An agent got a ticket", "certain"),
    "REJECTED": ("The help desk refused the ticket: no agent has it", "problem"),
    "PLANNED": ("The ticket did not reach the help desk", "certain"),
    "UNKNOWN": ("The help desk’s answer was lost: it may have the ticket", "unknown"),
}
_OF_RECORD = {"CONFIRMED": ("Noted in the customer’s record that mail does not reach the address", "done")}
_OUTCOMES = {
    "customers.give_address_up": _OF_RECORD,
    "payments.refund": _OF_PAYMENT,
    "mail.send": _OF_MAIL,
    "tickets.create": _OF_TICKET,
}


def _doubt(fact: Fact, line: Line) -> Told:
    reason = fact.text("reason") or "an earlier request of it is unexplained"
    return f"In doubt, {_thing(fact)} may have happened: {reason}", "unknown"


def _absent(fact: Fact, line: Line) -> Told:
    return f"The provider was asked: {_thing(fact)} did not happen", "certain"


def _resolved(fact: Fact, line: Line) -> Told:
    verdicts = {
        "happened": (f"looked it up: {_thing(fact)} happened", "certain"),
        "did_not_happen": (f"looked it up: {_thing(fact)} did not happen", "certain"),
    }
    text, kind = verdicts.get(fact.text("verdict"), (f"wants {_thing(fact)} to be looked up again", "note"))
    return _with(f"{fact.who or 'Somebody with access to the server'} {text}", fact.text("reason")), kind


def _open_lookup(fact: Fact, line: Line) -> Told:
    return _with(f"The provider was asked about {_thing(fact)} and could not tell", fact.text("reason")), "unknown"


def _thing(fact: Fact) -> str:
    return in_words(fact.text("effect"))


def _asked(fact: Fact, line: Line) -> Told:
    return "A manager was asked", "waiting"


def _ended(fact: Fact, line: Line) -> Told:
    if fact.data.get("state") == "SUCCEEDED":
        return "Finished", "done"
    if fact.data.get("state") == "CANCELLED":
        return "Called off", "done"
    return line.text.replace("The run ended", "Ended", 1), line.kind


def _ending(fact: Fact, line: Line) -> Told:
    if fact.data.get("reason") in ("cancel", "failure"):  # said by the lines beside it
        return None
    return _with("It is being stopped", fact.text("detail")), "problem"


_TELLERS: dict[str, Callable[[Fact, Line], Told]] = {
    "run.started": lambda fact, line: (f"Asked for{fact.by}", "done"),
    "run.ended": _ended,
    "run.ending": _ending,
    "run.cancel_asked": lambda fact, line: (_with(f"Called off{fact.by}", fact.text("reason")), "note"),
    "run.retried": lambda fact, line: (_with(f"Set going again{fact.by}", fact.text("reason")), "note"),
    "step.ready": _ready,
    "step.claimed": _claimed,
    "step.succeeded": _succeeded,
    "step.retry_scheduled": _retry,
    "step.failed": _failed,
    "step.in_doubt": _in_doubt,
    "step.worker_lost": _lost,
    "step.waiting": _waiting,
    "step.cancelled": lambda fact, line: None,
    "step.needs_person": _needs_person,
    "approval.asked": _asked,
    "approval.escalated": lambda fact, line: ("Nobody answered in time: others are asked", "waiting"),
    "effect.dispatched": _dispatched,
    "effect.recorded": _recorded,
    "effect.in_doubt": _doubt,
    "effect.absent": _absent,
    "effect.audited": _absent,
    "effect.resolved": _resolved,
    "lookup.open": _open_lookup,
    "lookup.stale": lambda fact, line: None,
}
