"""Where a refund stands, for people: one word of a closed list, worked out from the request and its run.

Pure: values in, values out. `run_facts` reads the values; lists, badges and `situation` show what is worked out here.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from customer_ops.models import RefundState

SENT_STATES = frozenset({"DISPATCHED", "UNKNOWN", "ACCEPTED"})
"""States of the payment in which money may have left, and nobody here knows."""


class Standing(Enum):
    """Value: the words of the badge. Name: its style."""

    UNDERWAY = "under way"
    WAITING = "waiting for a manager"
    SENT = "sent, no answer yet"
    TAKEN = "taken by the provider"
    DOUBT = "in doubt"
    PERSON = "needs a person"
    ENDING = "being called off"
    STOPPING = "being stopped"
    PAID = "paid, being booked"
    REFUNDED = RefundState.REFUNDED.label
    REJECTED = RefundState.REJECTED.label
    FAILED = RefundState.FAILED.label
    WITHDRAWN = RefundState.WITHDRAWN.label

    @property
    def style(self) -> str:
        """The ending of the badge's class."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Question:
    """What a manager is asked: since when, until when, and what comes of silence.

    asked_back   who of those who are asked waits for a reply of who asked; '' for nobody
    """

    id: str
    since: datetime
    expires_at: datetime
    asks_others: bool
    asked_back: str = ""


@dataclass(frozen=True, slots=True)
class Outside:
    """What the ledger knows of one action outside."""

    state: str
    sent_at: datetime | None = None
    next_lookup_at: datetime | None = None
    settles_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a refund's run says of itself. `step`, `step_state`: the step that it is at."""

    state: str
    is_ended: bool = False
    parked_detail: str = ""
    ending: str = ""
    cancelled_by: str = ""
    alert: str = ""
    step: str = ""
    step_state: str = ""
    wake_at: datetime | None = None
    needs_person: bool = False
    waits_for: str = ""
    retry_reason: str = ""
    payment: Outside | None = None
    mail: Outside | None = None
    question: Question | None = None

    @property
    def may_have_paid(self) -> bool:
        """Was the payment sent, and is its outcome unknown?"""
        return self.payment is not None and self.payment.state in SENT_STATES

    @property
    def has_paid(self) -> bool:
        """Is it known that the money went back? The request says so only a step later."""
        return self.payment is not None and self.payment.state == "CONFIRMED"

    @property
    def is_stuck(self) -> bool:
        """Does it go on only when a person has looked at it?"""
        return self.needs_person or self.state == "PARKED" or bool(self.alert)


def standing_of(state: str, facts: RunFacts | None) -> Standing:
    """Say where a request stands; `facts` is None when it has no run."""
    if state != RefundState.PENDING:
        return Standing[state]
    if facts is None:
        return Standing.UNDERWAY
    return _of_payment(facts) or _of_run(facts)


def _of_payment(facts: RunFacts) -> Standing | None:
    if facts.has_paid:
        return Standing.PAID
    state = facts.payment.state if facts.payment else ""
    # A send is at rest in DISPATCHED only while its worker is at it; anything else means that the answer is lost.
    if state == "UNKNOWN" or (state == "DISPATCHED" and facts.step_state != "RUNNING"):
        return Standing.DOUBT
    return None


def _of_run(facts: RunFacts) -> Standing:
    if facts.ending:
        return Standing.ENDING if facts.ending == "cancel" else Standing.STOPPING
    if facts.is_stuck:
        return Standing.PERSON
    if facts.state == "WAITING_HUMAN":
        return Standing.WAITING
    sent = {"DISPATCHED": Standing.SENT, "ACCEPTED": Standing.TAKEN}
    return sent.get(facts.payment.state if facts.payment else "", Standing.UNDERWAY)


def needs_a_look(state: str, facts: RunFacts | None) -> bool:
    """Is it in doubt, or waiting for a person other than the manager who is asked? After the refund too."""
    if facts is None:
        return False
    in_doubt = facts.state == "NEEDS_RECONCILIATION"
    return in_doubt or facts.is_stuck or standing_of(state, facts) is Standing.DOUBT
