"""Approving less than was asked: within bounds, bound to what was shown, and exact where the workflow reads it."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from durableflows import (
    AlreadyDecided,
    Facts,
    FactsChanged,
    InvalidState,
    Money,
    Run,
    StepReturn,
    Workflow,
    api,
    approval,
    each,
    step,
    votes,
)
from durableflows.core.payload import sha256
from durableflows.core.states import ApprovalState, RunState
from durableflows.doctor import verify
from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, WorkflowRun
from durableflows.testing import World
from tests.support.asking import (
    APPROVE,
    PAID,
    USD_500,
    USD_5000,
    GrantState,
    Lower,
    answer,
    asked,
    change_data,
    grant,
    pay_out,
    person,
    started,
)
from tests.support.look import state_of

pytestmark = pytest.mark.django_db(transaction=True)

USD_400 = Money(40_000, "USD")
STORED = {"amount": {"amount_minor": 40_000, "currency": "USD"}}


def test_a_lower_amount_is_what_the_workflow_pays(world: World):
    """P9: the exact value, in the row, in the history, and in the decision that the step reads."""
    grant(permission=APPROVE, edits=Lower)
    mia, request = person("mia", APPROVE), asked(world)
    assert [field["name"] for field in request.edit_schema] == ["amount"]

    answer(request, mia, edits={"amount": USD_400})
    world.run_until_idle()

    assert PAID == [USD_400]
    assert request.decisions.get().edits == STORED
    said = RunEvent.objects.get(kind="approval.answered").data
    assert (said["edits"], said["edits_sha256"]) == (STORED, sha256(STORED))
    assert state_of(request.run) is RunState.SUCCEEDED


def test_what_is_approved_as_it_was_asked_has_no_edits(world: World):
    grant(permission=APPROVE, edits=Lower)
    request = asked(world)

    answer(request, person("mia", APPROVE), edits={"amount": USD_500})
    world.run_until_idle()

    assert PAID == [USD_500]
    assert request.decisions.get().edits == {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"edits": {"amount": Money(50_001, "USD")}}, "at most USD 500.00"),
        ({"edits": {"amount": Money(0, "USD")}}, "more than nothing"),
        ({"edits": {"amount": Money(1, "EUR")}}, "must be in USD"),
        ({"edits": {"to": "Eve"}}, "is no field of the form"),
        ({"edits": {"amount": USD_400}, "verdict": "reject"}, "what is rejected is not changed"),
        ({"edits": [("amount", USD_400)]}, "a mapping of names to values"),
    ],
)
def test_what_is_out_of_bounds_decides_nothing(world: World, given: dict[str, Any], says: str):
    """A higher amount, another currency or another recipient needs a new question."""
    grant(permission=APPROVE, edits=Lower)
    mia, request = person("mia", APPROVE), asked(world)

    with pytest.raises(InvalidState, match=says):
        answer(request, mia, **given)

    assert not ApprovalDecision.objects.exists()
    assert ApprovalRequest.objects.get().state == ApprovalState.OPEN


def test_nothing_is_changed_where_nothing_may_be(world: World):
    grant(permission=APPROVE)
    request = asked(world)

    with pytest.raises(InvalidState, match="nothing of this request may be changed"):
        answer(request, person("mia", APPROVE), edits={"amount": USD_400})

    assert not ApprovalDecision.objects.exists()


def test_edits_of_a_stale_page_are_not_taken(world: World):
    """The bounds were those of other facts: what is allowed by now was never shown."""
    grant(permission=APPROVE, edits=Lower)
    mia, request = person("mia", APPROVE), asked(world, USD_400)
    stale = request.facts_digest
    change_data(request.run_id, amount=USD_5000)

    for amount in (USD_500, Money(30_000, "USD"), Money(9_000_000, "USD")):
        with pytest.raises(FactsChanged):
            api.answer(request.pk, "approve", by=mia, facts_digest=stale, edits={"amount": amount})

    request.refresh_from_db()
    assert not ApprovalDecision.objects.exists()
    assert request.edit_schema[0]["most"] == {"amount_minor": 500_000, "currency": "USD"}


def test_the_same_values_again_are_friendly_and_others_are_another_answer(world: World):
    """R22."""
    grant(permission=APPROVE, edits=Lower, quorum=2)
    mia, request = person("mia", APPROVE), asked(world)

    answer(request, mia, edits={"amount": USD_400})
    answer(request, mia, edits={"amount": USD_400})
    assert request.decisions.count() == 1
    answer(request, mia)

    assert [vote.edits for vote in request.decisions.filter(voided_at=None)] == [{}]
    assert request.decisions.count() == 2


def test_people_agree_only_on_the_same_values(world: World):
    """P9: two who approve different amounts have approved neither."""
    grant(permission=APPROVE, edits=Lower, quorum=2)
    mia, max_, moe = (person(name, APPROVE) for name in ("mia", "max", "moe"))
    request = asked(world)

    answer(request, mia, edits={"amount": USD_400})
    answer(request, max_)
    world.run_until_idle()
    assert PAID == []
    assert votes.so_far(votes.standing(request)) == 1, "people are told how many approve the same"
    answer(request, moe, edits={"amount": USD_400})
    world.run_until_idle()

    assert PAID == [USD_400]
    with pytest.raises(AlreadyDecided, match="already approved by moe"):
        answer(request, max_, "reject")


def test_what_was_changed_as_approved_still_holds_on_waking(world: World):
    """The state may have the approved value already, when a try that stored it is made again. No other value holds."""
    grant(permission=APPROVE, edits=Lower)
    mia = person("mia", APPROVE)
    same, other = asked(world), asked(world)
    for request in (same, other):
        answer(request, mia, edits={"amount": USD_400})
    change_data(same.run_id, amount=USD_400)
    change_data(other.run_id, amount=Money(39_999, "USD"))

    world.run_until_idle()

    assert PAID == [USD_400]
    assert "has changed since (amount)" in WorkflowRun.objects.get(pk=other.run_id).parked_detail


def test_values_that_were_changed_from_outside_are_found_and_raise_nothing(world: World):
    """P13: the history says what was approved, and the bounds are looked at once more before it is used."""
    grant(permission=APPROVE, edits=Lower)
    mia, request = person("mia", APPROVE), asked(world)
    answer(request, mia, edits={"amount": USD_400})
    ApprovalDecision.objects.update(edits={"amount": {"amount_minor": 50_001, "currency": "USD"}})

    world.run_until_idle()

    assert state_of(request.run) is RunState.PARKED
    assert PAID == []
    assert [one.code for one in verify().findings] == ["answer-changed", "answer-changed"]


def test_a_validator_that_fails_decides_nothing(world: World):
    grant(permission=APPROVE, edits=Broken)
    request = asked(world)

    with pytest.raises(InvalidState, match=r"cannot be checked now \(ZeroDivisionError\)"):
        answer(request, person("mia", APPROVE), edits={"amount": USD_400})

    assert not ApprovalDecision.objects.exists()


class Broken(BaseModel):
    """Its validator has a mistake."""

    amount: Money

    @field_validator("amount")
    @classmethod
    def half(cls, amount: Money) -> Money:
        """Divide by nothing."""
        return Money(amount.amount_minor // 0, "USD")


def branches() -> None:
    """Each part of a grant is asked about and paid by itself, all at once."""
    grant(permission=APPROVE)

    class Grants(Workflow[GrantState]):
        name, deadline = "grants", timedelta(days=60)

        @step(start=True, to=("part", "gather"))
        def split(self, run: Run[GrantState]) -> StepReturn:
            return each(self.part, [10_000, 20_000, 30_000], key=str, then=self.gather)

        @step(to="sign_off")
        def part(self, run: Run[GrantState]) -> None: ...

        sign_off = approval(
            title="Part {part}", shows=part_facts, permission=APPROVE, edits=Lower, approved="give", rejected="gather"
        )

        @step(to="gather", effects=(pay_out,))
        def give(self, run: Run[GrantState]) -> None:
            edits = run.decision(self.sign_off).edits
            run.effect(pay_out, amount=edits.amount if isinstance(edits, Lower) else Money(int(run.item_key), "USD"))

        @step(join=True, end=True)
        def gather(self, run: Run[GrantState]) -> None: ...


def part_facts(run: Run[GrantState]) -> Facts:
    return Facts(binding={"part": run.item_key, "amount": Money(int(run.item_key), "USD")})


def test_parallel_requests_of_one_run_do_not_mix(world: World):
    """P9: an answer, its digest and its values belong to one branch."""
    branches()
    mia = person("mia", APPROVE)
    run = api.start("grants", {"amount": USD_500})
    world.run_until_idle()
    first, second, third = run.requests.order_by("title")

    with pytest.raises(FactsChanged):
        api.answer(second.pk, "approve", by=mia, facts_digest=first.facts_digest)
    answer(third, mia, edits={"amount": Money(25_000, "USD")})
    answer(first, mia, edits={"amount": Money(5_000, "USD")})
    answer(second, mia, "reject")
    world.run_until_idle()

    assert sorted(money.amount_minor for money in PAID) == [5_000, 25_000]
    assert state_of(run) is RunState.SUCCEEDED


class Free(BaseModel):
    """Money that no fact bounds."""

    fee: Money


def test_nobody_is_asked_with_a_form_that_has_no_bounds(world: World):
    grant(permission=APPROVE, edits=Free)
    run = started(world)

    assert state_of(run) is RunState.PARKED
    assert "no binding fact 'fee' is" in WorkflowRun.objects.get(pk=run.pk).parked_detail
    assert not ApprovalRequest.objects.exists()


class Noted(Lower):
    """What an approver may change, with words."""

    note: str = ""


@pytest.mark.parametrize("note", ["sk_" + "live_" + "0123456789abcdef", "x" * 300_000], ids=["a key", "too long"])
def test_edits_that_may_not_be_stored_decide_nothing(world: World, note: str):
    """P14, R31, R38."""
    grant(permission=APPROVE, edits=Noted)
    request = asked(world)

    with pytest.raises(InvalidState, match=r"looks like a key|bytes, the limit is"):
        answer(request, person("mia", APPROVE), edits={"note": note})

    assert not request.decisions.exists()
