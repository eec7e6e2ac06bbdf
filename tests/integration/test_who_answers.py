"""Who may answer: by a right, a group or a name, for which amounts, how many, and who after them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from durableflows import (
    Approvers,
    Band,
    Facts,
    FactsChanged,
    Money,
    NotAllowed,
    NotFoundError,
    api,
)
from durableflows.core.states import ApprovalState, RunState
from durableflows.models import Addressee, ApprovalDecision, ApprovalRequest, RunEvent, WorkflowRun
from durableflows.rights import Standing
from durableflows.selectors import OPERATE, may_answer, refusal, requests_for, waiting_for
from durableflows.testing import World, open_request
from tests.support.asking import (
    APPROVE,
    DIRECT,
    PAID,
    USD_500,
    USD_5000,
    again,
    answer,
    asked,
    change_data,
    grant,
    person,
    started,
)
from tests.support.look import state_of

pytestmark = pytest.mark.django_db(transaction=True)

BANDS = (
    Band(USD_500, None),
    Band(USD_5000, Approvers(APPROVE)),
    Band(None, Approvers(groups=("finance",), quorum=2)),
)
ANY = Approvers(APPROVE, groups=("finance",), people=("ada",))


def bands(**rules: Any) -> None:
    grant(bands=BANDS, amount="amount", **rules)


def kinds(request: ApprovalRequest) -> list[str]:
    rows = RunEvent.objects.filter(run=request.run_id, kind__startswith="approval.")
    return [*rows.order_by("sequence").values_list("kind", flat=True)]


def test_a_page_of_the_projects_own_offers_the_way_to_whoever_may_answer(world: World):
    grant(permission=APPROVE, groups=("finance",))
    owner = person("olga", APPROVE)
    manager, finance, stranger = person("bob", APPROVE), person("flo", groups=("finance",)), person("sam")
    request = asked(world, by=owner)

    assert [api.may_answer(request.pk, by=one) for one in (manager, finance, stranger, owner)] == [1, 1, 0, 0]

    answer(request, manager)
    assert not api.may_answer(request.pk, by=finance)


@pytest.mark.parametrize(
    ("who", "right"),
    [
        (lambda: person("bob", APPROVE), f"permission:{APPROVE}"),
        (lambda: person("bob", groups=("finance",)), "group:finance"),
        (lambda: person("ada"), "person:ada"),
    ],
)
def test_each_of_the_ways_is_enough(world: World, who: Callable[[], Any], right: str):
    grant(permission=APPROVE, groups=("finance",), people=("ada",))
    somebody, request = who(), asked(world)
    assert list(waiting_for(somebody, now=world.clock.now())) == [request]

    answer(request, somebody)

    assert request.decisions.get().right == right
    assert list(requests_for(somebody)) == [request]
    world.run_until_idle()
    assert PAID == [USD_500]


@pytest.mark.parametrize(
    "who",
    [
        lambda: person("bob", DIRECT, groups=("sales",)),
        lambda: person("Ada"),
        lambda: person("ada", is_active=False),
        lambda: person("eve", groups=("finance",), is_active=False),
    ],
)
def test_whoever_fits_none_of_them_answers_nothing(world: World, who: Callable[[], Any]):
    """R25, R26."""
    grant(permission=APPROVE, groups=("finance",), people=("ada",))
    somebody, request = who(), asked(world)

    with pytest.raises((NotAllowed, NotFoundError)):
        answer(request, somebody)

    assert not somebody.is_active or "members of finance or ada" in refusal(request, somebody)
    assert not may_answer(request, somebody)
    assert not waiting_for(somebody, now=world.clock.now()).exists()
    assert not ApprovalDecision.objects.exists()


def test_a_superuser_is_in_no_group_and_has_no_other_name(world: World, django_user_model: Any):
    """R27: what is asked of named people is not for administrators, who have every permission."""
    grant(groups=("finance",), people=("ada",))
    root, request = django_user_model.objects.create_superuser("root"), asked(world)

    with pytest.raises(NotAllowed, match="it is asked of members of finance or ada"):
        answer(request, root)

    assert not waiting_for(root, now=world.clock.now()).exists()


def test_who_asked_answers_neither_as_a_member_nor_by_name(world: World):
    """R27."""
    grant(groups=("finance",), people=("ada",))
    ada = person("ada", groups=("finance",))
    request = asked(world, by=ada)

    with pytest.raises(NotAllowed, match="you asked for this yourself"):
        answer(request, ada)

    assert not waiting_for(ada, now=world.clock.now()).exists()


@pytest.mark.parametrize("is_asked", [True, False], ids=["while it is asked", "before it is asked"])
def test_who_has_changed_by_hand_what_is_asked_does_not_approve_it(world: World, is_asked: bool):
    """R27: not only who asked. Somebody else decides, and is found to be there."""
    grant(permission=APPROVE)
    operator = person("op", APPROVE, OPERATE)
    run = started(world) if is_asked else api.start("grant", {"amount": USD_500})
    api.pause(run.pk, by=operator, reason="wrong name")
    api.edit(run.pk, by=operator, reason="wrong name", changes={"to": "Eve"})
    api.resume(run.pk, by=operator, reason="right now")
    world.run_until_idle()
    request = open_request(run.pk)

    with pytest.raises(NotAllowed, match="you have changed by hand what is asked here"):
        answer(request, operator)
    assert not waiting_for(operator, now=world.clock.now()).exists()
    world.clock.advance(minutes=1)
    world.run_until_idle()
    request.refresh_from_db()
    assert request.unanswerable_at is not None

    answer(request, person("mia", APPROVE))
    world.run_until_idle()
    assert PAID == [USD_500]


def test_who_has_changed_what_nobody_was_shown_does_not_approve_it_either(world: World):
    """R27: the state goes on into the approved step, whatever of it the request shows."""
    grant(permission=APPROVE, shows=lambda run: Facts(binding={"amount": run.state.amount}))
    operator = person("op", APPROVE, OPERATE)
    request = asked(world)
    api.pause(request.run_id, by=operator, reason="wrong name")
    api.edit(request.run_id, by=operator, reason="wrong name", changes={"to": "Eve"})
    api.resume(request.run_id, by=operator, reason="right now")

    with pytest.raises(NotAllowed, match="you have changed by hand what is asked here"):
        answer(request, operator)

    assert answer(request, person("mia", APPROVE)).state == ApprovalState.APPROVED


def test_who_has_left_the_group_answers_no_more(world: World):
    """R26: looked at when the page is shown, when it is posted, and when the run wakes."""
    grant(groups=("finance",))
    ada, eve = person("ada", groups=("finance",)), person("eve", groups=("finance",))
    first, second = asked(world), asked(world)
    assert may_answer(first, eve)
    answer(second, ada)
    Group.objects.get(name="finance").user_set.clear()

    with pytest.raises((NotAllowed, NotFoundError)):
        answer(first, eve)
    world.run_until_idle()

    assert first.state == ApprovalState.OPEN
    stopped = WorkflowRun.objects.get(pk=second.run_id)
    assert stopped.state == RunState.PARKED
    assert "ada, who approved, is not in the group finance any more" in stopped.parked_detail
    assert PAID == []


def test_a_name_that_was_given_to_somebody_else_stops_the_run(world: World):
    """R26: what was asked of ada is not decided by whoever was ada."""
    grant(people=("ada",))
    ada, request = person("ada"), asked(world)
    answer(request, ada)
    ada.username = "eve"
    ada.save()
    world.run_until_idle()

    assert "is not called ada any more" in WorkflowRun.objects.get(pk=request.run_id).parked_detail


def test_nobody_is_asked_about_little(world: World):
    """The rule is evidence as an answer is: a closed request that says which one it was."""
    bands()
    run = started(world, USD_500)

    request = ApprovalRequest.objects.get(run=run)
    assert (request.state, request.band, request.quorum) == (ApprovalState.APPROVED, "up to USD 500.00", 0)
    assert request.closed_reason == "nobody needs to be asked, up to USD 500.00"
    assert (request.asked_of, request.amount) == (None, USD_500)
    assert kinds(request) == ["approval.not_needed"]
    assert PAID == [USD_500]
    assert state_of(run) is RunState.SUCCEEDED
    with pytest.raises(NotAllowed, match="the rules ask nobody"):
        answer(request, person("bob", APPROVE, is_superuser=True))


@pytest.mark.parametrize(
    ("amount", "band", "by"),
    [
        (Money(50_001, "USD"), "up to USD 5,000.00", Approvers(APPROVE)),
        (USD_5000, "up to USD 5,000.00", Approvers(APPROVE)),
        (Money(500_001, "USD"), "above USD 5,000.00", Approvers(groups=("finance",), quorum=2)),
        (Money(1, "EUR"), "any amount in EUR", Approvers(groups=("finance",), quorum=2)),
    ],
)
def test_the_amount_says_who_is_asked(world: World, amount: Money, band: str, by: Approvers):
    bands()

    request = asked(world, amount)

    assert (request.band, request.asked_of, request.amount) == (band, by, amount)
    assert [*Addressee.objects.values_list("kind", "name")] == [("group", name) for name in by.groups]
    manager, clerk = person("mia", APPROVE), person("fay", groups=("finance",))
    assert may_answer(request, manager) is (by.permission == APPROVE)
    assert may_answer(request, clerk) is bool(by.groups)


def test_two_of_a_group_must_agree_where_two_are_needed(world: World):
    """R22: one person counts once, whatever is clicked."""
    bands()
    fay, flo = person("fay", groups=("finance",)), person("flo", groups=("finance",))
    request = asked(world, Money(500_001, "USD"))

    answer(request, fay)
    answer(request, fay)
    world.run_until_idle()
    request.refresh_from_db()
    assert (request.state, PAID) == (ApprovalState.OPEN, [])
    answer(request, flo)
    world.run_until_idle()

    assert [Money(500_001, "USD")] == PAID
    assert request.decisions.count() == 2


def test_a_first_vote_that_may_not_be_given_any_more_is_void(world: World):
    """R26: who has lost the right between the two votes is not one of the two."""
    bands()
    fay, flo, fred = (person(name, groups=("finance",)) for name in ("fay", "flo", "fred"))
    request = asked(world, Money(500_001, "USD"))
    answer(request, fay)
    fay.groups.clear()

    answer(request, flo)
    request.refresh_from_db()
    assert request.state == ApprovalState.OPEN
    assert request.decisions.get(actor=fay).voided_reason == "who gave it may not decide any more"
    answer(request, fred)
    world.run_until_idle()

    assert len(PAID) == 1


def test_a_higher_amount_is_a_new_question_for_others(world: World):
    """P9, R22: the first rule's people decide it no more, and have their own time."""
    bands(expires=timedelta(days=2))
    mia, fay, flo = person("mia", APPROVE), *(person(name, groups=("finance",)) for name in ("fay", "flo"))
    request = asked(world, USD_5000)
    world.clock.advance(days=1)
    stale = request.facts_digest
    change_data(request.run_id, amount=Money(500_001, "USD"))

    with pytest.raises(FactsChanged, match="amount"):
        api.answer(request.pk, "approve", by=mia, facts_digest=stale)

    request.refresh_from_db()
    assert (request.band, request.quorum, request.groups) == ("above USD 5,000.00", 2, ["finance"])
    assert request.expires_at == world.clock.now() + timedelta(days=2)
    assert request.asked_at == world.clock.now()
    assert not waiting_for(mia, now=world.clock.now()).exists()
    with pytest.raises(NotFoundError):
        answer(request, mia)
    answer(request, fay)
    answer(request, flo)
    world.run_until_idle()
    assert [Money(500_001, "USD")] == PAID


def test_a_vote_of_another_band_is_void_even_of_who_may_decide_in_both(world: World):
    """P9: it was about other facts."""
    both = person("both", APPROVE, groups=("finance",))
    grant(bands=(Band(USD_500, Approvers(APPROVE, quorum=2)), BANDS[-1]), amount="amount")
    request = asked(world, USD_500)
    answer(request, both)
    change_data(request.run_id, amount=USD_5000)

    with pytest.raises(FactsChanged):
        answer(request, person("mia", APPROVE))

    assert request.decisions.get().voided_reason == "the facts changed"


def test_a_person_who_is_asked_decides_though_the_amount_falls(world: World):
    """The rule that asks nobody is for what nobody was asked about: it decides nothing behind a person's back."""
    bands()
    mia, request = person("mia", APPROVE), asked(world, USD_5000)
    change_data(request.run_id, amount=Money(100, "USD"))

    with pytest.raises(FactsChanged):
        answer(request, mia)

    request.refresh_from_db()
    assert (request.state, request.asked_of) == (ApprovalState.OPEN, Approvers(APPROVE))
    answer(request, mia, "reject")
    world.run_until_idle()
    assert PAID == []


def test_what_nobody_was_asked_about_is_looked_at_on_waking(world: World):
    """P9: the amount has grown between the rule and the send, and so have the rules."""
    bands()
    run = api.start("grant", {"amount": USD_500})
    for _ in range(2):
        world.deliver(*world.messages.popleft())
    assert ApprovalRequest.objects.get(run=run).state == ApprovalState.APPROVED
    change_data(run.pk, amount=USD_5000)

    world.run_until_idle()

    assert "has changed since (amount)" in WorkflowRun.objects.get(pk=run.pk).parked_detail
    assert PAID == []


def test_an_amount_that_a_function_gives_is_bound(world: World):
    """The votes are about it, and so is the digest."""
    grant(bands=BANDS, amount=lambda run: Money(run.state.amount.amount_minor * 2, "USD"))
    request = asked(world, USD_500)

    assert request.amount == Money(100_000, "USD")
    assert request.binding["amount that decides who is asked"] == {"amount_minor": 100_000, "currency": "USD"}


@pytest.mark.parametrize("amount", ["sum", lambda run: 500])
def test_an_amount_that_is_not_there_asks_nobody_by_mistake(world: World, amount: Any):
    grant(bands=BANDS, amount=amount)
    run = started(world)

    assert state_of(run) is RunState.PARKED
    assert not ApprovalRequest.objects.exists()


def test_lists_ask_the_database_as_often_for_many_requests_as_for_few(world: World):
    bands()
    fay = person("fay", APPROVE, groups=("finance",))

    def counted() -> int:
        with CaptureQueriesContext(connection) as queries:
            somebody = again(fay)
            standing = Standing(somebody)
            rows = [*waiting_for(somebody, now=world.clock.now())]
            assert rows
            assert all(not refusal(row, standing) for row in rows)
            assert len([*requests_for(somebody)]) >= len(rows)
        return len(queries)

    both = (USD_5000, Money(500_001, "USD"))
    for amount in both:
        asked(world, amount)
    counted()  # what Django keeps from then on
    few = counted()
    for amount in both * 5:
        asked(world, amount)

    assert counted() == few <= 12
