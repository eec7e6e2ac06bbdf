"""Asking for a refund: what is refused, what is reserved, and that a form counts once."""

import uuid

import pytest
from django.contrib.auth.models import User

from customer_ops import selectors, services
from customer_ops.errors import FormAlreadySent, MoreThanLeft, RefundRefused, RequestEnded, WrongAmount
from customer_ops.models import Charge, RefundRequest, RefundState
from durableflows import Money, NotAllowed, api
from durableflows.models import WorkflowRun
from tests.support.desk import make_agent, make_charge, make_request, make_user, run_id_of, usd


@pytest.fixture
def agent(db: None) -> User:
    return make_agent()


@pytest.fixture
def charge(db: None) -> Charge:
    """A charge of 100 dollars."""
    return make_charge(usd("100.00"))


def ask(
    charge: Charge, amount: Money, by: User, *, token: uuid.UUID | None = None, reason: str = "broken"
) -> RefundRequest:
    """Ask for a refund with a fresh form."""
    return services.request_refund(charge.pk, amount, reason, by=by, form_token=token or uuid.uuid4())


def test_a_refund_is_reserved_and_its_run_started(agent: User, charge: Charge) -> None:
    """S1.5."""
    request = ask(charge, usd("30.00"), agent)

    run = WorkflowRun.objects.get(pk=run_id_of(request))
    assert (run.workflow, run.business_key, run.owner) == ("refund", f"refund:{request.pk}", agent)
    assert run.subject == request
    assert selectors.balance(charge).left == usd("70.00")


def test_more_than_is_left_is_refused_with_what_is_left(agent: User, charge: Charge) -> None:
    ask(charge, usd("60.00"), agent)

    with pytest.raises(MoreThanLeft, match=r"\$60\.01 is more than the \$40\.00 left") as caught:
        ask(charge, usd("60.01"), agent)

    assert caught.value.left == usd("40.00")
    assert RefundRequest.objects.count() == WorkflowRun.objects.count() == 1


def test_the_last_cent_can_be_refunded(agent: User, charge: Charge) -> None:
    ask(charge, usd("60.00"), agent)
    ask(charge, usd("40.00"), agent)

    assert selectors.balance(charge).left.is_zero


@pytest.mark.parametrize(
    ("state", "left"),
    [
        (RefundState.PENDING, "40.00"),
        (RefundState.REFUNDED, "40.00"),
        (RefundState.REJECTED, "100.00"),
        (RefundState.FAILED, "100.00"),
    ],
)
def test_a_request_counts_until_it_is_surely_not_paid(
    agent: User, charge: Charge, state: RefundState, left: str
) -> None:
    make_request(usd("60.00"), charge=charge, state=state)

    assert selectors.balance(charge).left == usd(left)


@pytest.mark.parametrize("amount", [Money(0, "USD"), Money(-1, "USD"), Money(1000, "EUR"), Money(1000, "JPY")], ids=str)
def test_a_wrong_amount_is_refused(agent: User, charge: Charge, amount: Money) -> None:
    with pytest.raises(WrongAmount):
        ask(charge, amount, agent)

    assert not RefundRequest.objects.exists()


@pytest.mark.parametrize("reason", ["", "  \n", "x" * 501])
def test_a_reason_is_needed_and_short(agent: User, charge: Charge, reason: str) -> None:
    with pytest.raises(RefundRefused):
        ask(charge, usd("1.00"), agent, reason=reason)


def test_a_form_sent_twice_gives_the_first_request(agent: User, charge: Charge) -> None:
    token = uuid.uuid4()

    first, second = (ask(charge, usd("60.00"), agent, token=token) for _ in range(2))

    assert first == second
    assert WorkflowRun.objects.count() == 1


def test_a_form_sent_again_after_its_refund_ended_pays_nothing_more(agent: User, charge: Charge) -> None:
    token = uuid.uuid4()
    first = ask(charge, usd("60.00"), agent, token=token)
    first.mark_failed("no such card")

    assert ask(charge, usd("60.00"), agent, token=token) == first
    assert RefundRequest.objects.count() == 1


def test_a_form_with_other_content_or_of_somebody_else_is_refused(agent: User, charge: Charge) -> None:
    token = uuid.uuid4()
    ask(charge, usd("10.00"), agent, token=token)

    with pytest.raises(FormAlreadySent):
        ask(charge, usd("11.00"), agent, token=token)
    with pytest.raises(FormAlreadySent):
        ask(make_charge(), usd("10.00"), agent, token=token)
    with pytest.raises(FormAlreadySent):
        ask(charge, usd("10.00"), make_agent(), token=token)


def test_a_refused_refund_leaves_nothing_when_the_engine_says_no(
    agent: User, charge: Charge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise RuntimeError("no engine today")

    monkeypatch.setattr(api, "start", refuse)

    with pytest.raises(RuntimeError):
        ask(charge, usd("10.00"), agent)

    assert not RefundRequest.objects.exists()


def test_an_end_is_recorded_once_and_not_overwritten(charge: Charge) -> None:
    request = make_request(usd("10.00"), charge=charge)

    request.mark_refunded("re_9")
    request.mark_refunded("re_9")

    with pytest.raises(RequestEnded):
        request.mark_rejected("too late")
    with pytest.raises(RequestEnded):
        request.mark_refunded("re_10")
    request.refresh_from_db()
    assert (request.state, request.refund_id, request.ended_because) == ("REFUNDED", "re_9", "")


def test_two_copies_of_a_row_agree_on_the_first_end(charge: Charge) -> None:
    request = make_request(usd("10.00"), charge=charge)
    stale = RefundRequest.objects.get(pk=request.pk)
    request.mark_rejected("no")

    stale.mark_rejected("no, from another worker")

    assert stale.ended_because == "no"


def test_whatever_way_leads_here_the_right_is_needed(charge: Charge) -> None:
    """R25."""
    with pytest.raises(NotAllowed):
        ask(charge, usd("1.00"), make_user("approve_refund"))

    assert not RefundRequest.objects.exists()
