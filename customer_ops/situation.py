"""What is certain about a refund, what is unknown, and what comes next and when: for people who work at the desk.

Pure: from the values of `standing`. Says plain text, never markup; texts of others in it are shown as any other text.
"""

from dataclasses import dataclass
from datetime import datetime

from customer_ops.models import RefundState
from customer_ops.standing import SENT_STATES, Outside, RunFacts


@dataclass(frozen=True, slots=True)
class Phrase:
    """A sentence without its full stop, and the moment that belongs behind it."""

    text: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """None: there is nothing of that kind to say. `look`: what a person should look at, though nothing waits for it."""

    certain: Phrase | None
    unknown: Phrase | None = None
    next: Phrase | None = None
    look: tuple[str, ...] = ()


NOTHING_LEFT = Phrase("No money has left")
TOLD = frozenset({"DISPATCHED", "UNKNOWN", "ACCEPTED", "CONFIRMED"})
"""States of the mail in which the customer was told, or may have been."""
_PAYMENT: dict[str, tuple[str, str]] = {
    "DISPATCHED": ("It was sent to the payment provider", "Whether the provider paid: no answer is here yet"),
    "UNKNOWN": ("It was sent to the payment provider", "Whether the money went back"),
    "ACCEPTED": ("The payment provider has taken it", "When the provider will be done with it"),
    "CONFIRMED": ("The payment provider has paid it", ""),
    "REJECTED": ("The payment provider refused it, so no money has left", ""),
    "ABSENT": ("The payment provider was asked and has no such refund: no money has left", ""),
}


def situation_of(state: str, refund_id: str, facts: RunFacts | None, *, now: datetime) -> Situation:
    """Say what is certain, unknown and next of a request in this state, whose run says these facts."""
    certain, unknown = _money(state, refund_id, facts)
    if facts is None:
        return Situation(certain, unknown)
    if state != RefundState.PENDING:
        unknown = _unknown_mail(facts.mail)
    return Situation(certain, unknown, _next(state, facts, now), _look(state, facts))


def _money(state: str, refund_id: str, facts: RunFacts | None) -> tuple[Phrase, Phrase | None]:
    payment = facts.payment if facts else None
    if state == RefundState.REFUNDED and payment is not None and payment.state == "REVERSED":
        return Phrase(f"The money went back, as {refund_id}, and the payment provider has taken that back since"), None
    if state == RefundState.REFUNDED:
        return Phrase(f"The money went back, as {refund_id}"), None
    if state != RefundState.PENDING or payment is None or payment.state not in _PAYMENT:
        return NOTHING_LEFT, None
    certain, unknown = _PAYMENT[payment.state]
    is_sent = payment.state in SENT_STATES
    return Phrase(certain, payment.sent_at if is_sent else None), Phrase(unknown) if unknown else None


def _unknown_mail(mail: Outside | None) -> Phrase | None:
    in_doubt = mail is not None and mail.state in ("DISPATCHED", "UNKNOWN")
    return Phrase("Whether the mail to the customer was taken by the mail server") if in_doubt else None


def _look(state: str, facts: RunFacts) -> tuple[str, ...]:
    return tuple(text for text in (in_words(facts.alert), _untold(state, facts)) if text)


def _untold(state: str, facts: RunFacts) -> str:
    """Say that no mail tells the customer any more: its run ended before, or the mail server refused it."""
    is_told = facts.mail is not None and facts.mail.state in TOLD
    if not facts.is_ended or is_told or state in (RefundState.PENDING, RefundState.WITHDRAWN):
        return ""
    who = f"called off by {facts.cancelled_by}" if facts.cancelled_by else ""
    return f"The customer got no mail about it{f': {who}' if who else ''}"


def _next(state: str, facts: RunFacts, now: datetime) -> Phrase | None:
    if facts.is_ended:
        is_left = state == RefundState.PENDING and facts.may_have_paid
        return Phrase("A person has taken over what is open; it goes on counting as paid") if is_left else None
    if facts.state == "PARKED":
        return Phrase(_because("A person must look at it and let it go on", facts.parked_detail))
    if facts.needs_person:
        return Phrase(_because("A person must find out what happened", facts.waits_for))
    if facts.ending:
        return _next_of_ending(facts)
    return _next_of_step(facts, now)


def _next_of_ending(facts: RunFacts) -> Phrase:
    who = f"Called off by {facts.cancelled_by}" if facts.cancelled_by else "It is being stopped"
    if facts.payment is None or not facts.may_have_paid:
        return Phrase(f"{who}; it ends when nothing of it is on its way any more", _settles(facts.payment))
    return Phrase(f"{who}; first it is found out whether it was paid", facts.payment.next_lookup_at or facts.wake_at)


def _settles(payment: Outside | None) -> datetime | None:
    return payment.settles_at if payment else None


def _next_of_step(facts: RunFacts, now: datetime) -> Phrase | None:
    if facts.question is not None:
        silence = "others are asked" if facts.question.asks_others else "it is rejected by itself"
        return Phrase(f"A manager decides; if nobody answers, {silence}", facts.question.expires_at)
    if facts.step_state == "RETRY_SCHEDULED":
        why = f" ({in_words(facts.retry_reason)})" if facts.retry_reason else ""
        return Phrase(_what(facts, f"did not work{why} and is tried again"), facts.wake_at)
    if facts.step_state == "READY":
        is_later = facts.wake_at is not None and facts.wake_at > now
        return Phrase(_what(facts, "goes on" if is_later else "is about to begin"), facts.wake_at if is_later else None)
    if facts.step_state == "RUNNING":
        return Phrase(_what(facts, "is under way"))
    return _next_of_waiting(facts)


def _next_of_waiting(facts: RunFacts) -> Phrase | None:
    if facts.step == "pay":
        asked = facts.payment.next_lookup_at if facts.payment else None
        return Phrase("The payment provider is asked what became of it", asked or facts.wake_at)
    return Phrase(_what(facts, "is looked at again"), facts.wake_at) if facts.step else None


STEPS = {
    "assess": "The check against the rules",
    "sign_off": "The manager’s decision",
    "pay": "The payment",
    "settle": "The booking",
    "turn_down": "The booking of the refusal",
    "give_up": "The booking of the failure",
    "tell_customer": "The mail to the customer",
    "ask_agent": "The ticket for an agent",
    "hand_over": "The hand-over to an agent",
}
"""The steps of the refund, as people call them. A step of another release is called by its own name."""


EFFECTS = {
    "payments.refund": "the refund",
    "mail.send": "the mail to the customer",
    "tickets.create": "the ticket for an agent",
    "customers.give_address_up": "the note in the customer’s record",
}
"""The actions outside, as people call them in the middle of a sentence."""


def in_words(text: str) -> str:
    """Say a sentence of the engine with people's names for the actions outside."""
    for name, words in EFFECTS.items():
        text = text.replace(name, words)
    return text


def step_name(name: str) -> str:
    """Say a step's name at the beginning of a sentence."""
    return STEPS.get(name, name.replace("_", " ").capitalize())


def _what(facts: RunFacts, does: str) -> str:
    return f"{step_name(facts.step)} {does}"


def _because(text: str, reason: str) -> str:
    return f"{text}: {in_words(reason)}" if reason else text
