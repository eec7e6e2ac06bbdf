"""What the desk's pages show, gathered: rows of the list, charges with their money and refunds.

Reads through `selectors`, `run_facts` and `services`; the words are `standing`'s, `situation`'s and `telling`'s. Writes
nothing. Called by the views.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User

from customer_ops import services
from customer_ops.forms import RefundForm, fresh_form
from customer_ops.models import MAY_ASK, Charge, Order, RefundRequest, RefundState
from customer_ops.run_facts import facts_of
from customer_ops.situation import Situation, situation_of
from customer_ops.standing import RunFacts, Standing, needs_a_look, standing_of
from customer_ops.telling import Timeline, tell
from durableflows import Money, api

MOVING_SECONDS, WAITING_SECONDS = 3, 15
"""How often a page that stays open is read again: while workers are at it, and while a person is waited for."""

Bound = tuple[Charge, RefundForm]
"""A form that was refused, and its charge."""


@dataclass(frozen=True, slots=True)
class Said:
    """One badge of a row: an amount, and where it stands."""

    amount: Money | None
    words: str
    style: str


@dataclass(frozen=True, slots=True)
class OrderRow:
    """An order in the list."""

    order: Order
    said: list[Said]


@dataclass(frozen=True, slots=True)
class Tally:
    """Where a charge's money is. The four add up to the charge."""

    refunded: Money
    underway: Money
    doubt: Money
    left: Money


@dataclass(frozen=True, slots=True)
class RefundCard:
    """A refund as its order's page shows it.

    timeline          None for somebody who may not see the run
    question_id       of what this person may decide; '' for nothing
    own_question_id   of what waits for others, where this person asked for it; asked_back: who wants a reply to it
    """

    request: RefundRequest
    standing: Standing
    situation: Situation
    timeline: Timeline | None
    question_id: str
    own_question_id: str
    asked_back: str
    may_be_called_off: bool

    @property
    def is_moving(self) -> bool:
        """Can anything of it change while the page is open, without anybody at this page?"""
        return self.request.is_pending or self.situation.next is not None


@dataclass(frozen=True, slots=True)
class ChargeCard:
    """A charge as the page shows it: its money, its refunds, and a form for who may ask."""

    charge: Charge
    tally: Tally
    refunds: list[RefundCard]
    form: RefundForm | None

    @property
    def left_typed(self) -> str:
        """What is left, as a form sends it back."""
        return f"{self.tally.left.amount:f}"


def order_rows(orders: Iterable[Order]) -> list[OrderRow]:
    """Say what is refunded and under way of each order. `orders`: with charges and refund requests prefetched."""
    listed = [
        (order, [one for charge in order.charges.all() for one in charge.refund_requests.all()]) for order in orders
    ]
    facts = facts_of([one.run_id for _, requests in listed for one in requests if one.run_id])
    return [OrderRow(order, _said(requests, facts)) for order, requests in listed]


def _said(requests: list[RefundRequest], facts: Mapping[UUID, RunFacts]) -> list[Said]:
    sums: dict[tuple[Standing, str], Money] = {}
    is_look_needed = False
    for request in requests:
        own = _own(request, facts)
        key = (standing_of(request.state, own), request.amount.currency)
        sums[key] = sums[key] + request.amount if key in sums else request.amount
        # Doubt and a person are in the badge already; after the refund they are not.
        is_look_needed |= key[0] not in (Standing.DOUBT, Standing.PERSON) and needs_a_look(request.state, own)
    order = list(Standing)
    rows = sorted(sums.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
    said = [Said(amount, standing.value, standing.style) for (standing, _), amount in rows]
    return [*said, Said(None, "needs a look", "person")] if is_look_needed else said


def _own(request: RefundRequest, facts: Mapping[UUID, RunFacts]) -> RunFacts | None:
    return facts.get(request.run_id) if request.run_id else None


def charge_cards(order: Order, *, user: User, now: datetime, bound: Bound | None) -> list[ChargeCard]:
    """Gather all that the page of an order shows to this person."""
    charges = list(order.charges.prefetch_related("refund_requests"))
    requests = [request for charge in charges for request in charge.refund_requests.all()]
    facts = facts_of([request.run_id for request in requests if request.run_id])
    return [_charge_card(charge, facts, user, now, bound) for charge in charges]


def _charge_card(
    charge: Charge, facts: Mapping[UUID, RunFacts], user: User, now: datetime, bound: Bound | None
) -> ChargeCard:
    requests = list(charge.refund_requests.all())
    tally = _tally(charge, requests, facts)
    form = None
    if bound is not None and bound[0] == charge:
        form = bound[1]
    elif tally.left.is_positive and user.has_perm(MAY_ASK):
        form = fresh_form(charge)
    return ChargeCard(charge, tally, [refund_card(one, _own(one, facts), user=user, now=now) for one in requests], form)


def _tally(charge: Charge, requests: list[RefundRequest], facts: Mapping[UUID, RunFacts]) -> Tally:
    nothing = Money(0, charge.amount.currency)
    refunded = underway = doubt = nothing
    for request in requests:
        own = _own(request, facts)
        if request.state == RefundState.REFUNDED or (request.is_pending and own is not None and own.has_paid):
            refunded += request.amount
        elif request.is_pending and own is not None and own.may_have_paid:
            doubt += request.amount
        elif request.is_pending:
            underway += request.amount
    return Tally(refunded, underway, doubt, charge.amount - refunded - underway - doubt)


def refund_card(request: RefundRequest, facts: RunFacts | None, *, user: User, now: datetime) -> RefundCard:
    """Gather what one refund shows to this person."""
    explanation = services.explain_refund(request, by=user)
    own = facts.question if facts is not None and request.requested_by_id == user.pk else None
    return RefundCard(
        request=request,
        standing=standing_of(request.state, facts),
        situation=situation_of(request.state, request.refund_id, facts, now=now),
        timeline=tell(explanation.lines) if explanation else None,
        question_id=_question_for(facts, user),
        own_question_id=own.id if own else "",
        asked_back=own.asked_back if own else "",
        may_be_called_off=can_be_called_off(request, facts) and services.may_call_off(request, by=user),
    )


def can_be_called_off(request: RefundRequest, facts: RunFacts | None) -> bool:
    """Is there anything left to call off? Asked again, under the lock, when somebody does."""
    is_open = request.is_pending and facts is not None and not facts.is_ended and not facts.ending
    return is_open and standing_of(request.state, facts) is not Standing.PAID


def _question_for(facts: RunFacts | None, user: User) -> str:
    """The open question that this person may answer, by its id."""
    question = facts.question if facts else None
    return question.id if question is not None and api.may_answer(question.id, by=user) else ""


def refresh_seconds(cards: Iterable[ChargeCard]) -> int:
    """How soon the page is read again by itself; 0: nothing of it is under way."""
    moving = [refund for card in cards for refund in card.refunds if refund.is_moving]
    waiting = (Standing.WAITING, Standing.PERSON)
    if not moving:
        return 0
    return WAITING_SECONDS if all(refund.standing in waiting for refund in moving) else MOVING_SECONDS
