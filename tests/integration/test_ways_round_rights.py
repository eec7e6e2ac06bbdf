"""Ways round who decides that look like ordinary use: another amount, a chain of delegates, an edit beside facts."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from durableflows import (
    Approvers,
    Band,
    Facts,
    FactsChanged,
    InvalidState,
    Money,
    NotAllowed,
    NotFoundError,
    Run,
    StepReturn,
    Workflow,
    api,
    approval,
    child,
    step,
)
from durableflows.core.payload import sha256
from durableflows.core.states import ApprovalState
from durableflows.models import ApprovalRequest, RunEvent
from durableflows.selectors import OPERATE, may_answer, waiting_for
from durableflows.testing import World
from tests.integration.test_lent_rights import is_refused, lend
from tests.support.asking import (
    APPROVE,
    PAID,
    USD_500,
    USD_5000,
    GrantState,
    again,
    answer,
    asked,
    change_data,
    grant,
    person,
)

pytestmark = pytest.mark.django_db(transaction=True)

BANDS = (Band(USD_500, Approvers(APPROVE)), Band(None, Approvers(groups=("finance",))))


def amount_alone(run: Run[GrantState]) -> Facts:
    """To whom it goes is no bound fact."""
    return Facts(binding={"amount": run.state.amount})


def digest(amount: Money) -> str:
    """What a page about this amount would post: whoever sees another request about the same knows it."""
    return sha256({"amount": {"amount_minor": amount.amount_minor, "currency": amount.currency}, "to": "Ada"})


def change_by_hand(request: ApprovalRequest, by: User, **changes: object) -> None:
    api.pause(request.run_id, reason="to look")
    api.edit(request.run_id, by=again(by), reason="wrong", changes=changes)
    api.resume(request.run_id, reason="right now")


def test_whoever_knows_the_facts_before_the_request_does_not_decide_for_others(world: World):
    """P9, R25: facts that are found to be others while an answer is taken may be for others to decide."""
    grant(bands=BANDS, amount="amount")
    mia, fay = person("mia", APPROVE), person("fay", groups=("finance",))
    request = asked(world)
    change_data(request.run_id, amount=USD_5000)

    with pytest.raises((NotAllowed, NotFoundError)):
        api.answer(request.pk, "approve", by=mia, facts_digest=digest(USD_5000))

    request.refresh_from_db()
    assert (request.state, request.groups, request.decisions.count()) == (ApprovalState.OPEN, ["finance"], 0)
    answer(request, fay)
    world.run_until_idle()
    assert [USD_5000] == PAID


def test_a_page_of_before_decides_nothing_when_its_amount_comes_back_and_is_for_others(world: World):
    """P9, R25."""
    grant(bands=BANDS, amount="amount")
    mia, fay = person("mia", APPROVE), person("fay", groups=("finance",))
    request = asked(world)
    change_data(request.run_id, amount=USD_5000)
    with pytest.raises(FactsChanged):
        api.answer(request.pk, "approve", by=mia, facts_digest=digest(USD_500))
    change_data(request.run_id, amount=USD_500)

    with pytest.raises((NotAllowed, NotFoundError)):
        api.answer(request.pk, "approve", by=fay, facts_digest=digest(USD_500))

    assert not request.decisions.exists()
    answer(request, mia)
    world.run_until_idle()
    assert [USD_500] == PAID


def test_who_knows_the_facts_before_the_request_and_is_asked_decides(world: World):
    grant(permission=APPROVE)
    mia, request = person("mia", APPROVE), asked(world)
    change_data(request.run_id, amount=USD_5000)

    decided = api.answer(request.pk, "approve", by=mia, facts_digest=digest(USD_5000))

    assert (decided.state, decided.facts_digest) == (ApprovalState.APPROVED, digest(USD_5000))


def test_who_acts_for_who_asked_lends_nothing_for_it(world: World):
    """R27: asker -> bo -> cy. Bo may not decide what asker has asked for, so Cy may not by Bo's right."""
    grant(permission=APPROVE)
    asker, bo, cy = person("asker"), person("bo", APPROVE), person("cy")
    lend(world, bo, cy)
    before = asked(world, by=asker)
    assert list(waiting_for(again(cy), now=world.clock.now())) == [before]
    lend(world, asker, bo)

    assert is_refused(before, cy)

    assert list(waiting_for(again(cy), now=world.clock.now())) == []
    assert may_answer(asked(world), again(cy))


def test_a_circle_of_delegates_decides_nothing_of_its_own(world: World):
    """R27."""
    grant(permission=APPROVE)
    ada, bo, cy = person("ada", APPROVE), person("bo"), person("cy")
    for giver, taker in ((ada, bo), (bo, ada), (bo, cy), (cy, ada)):
        lend(world, giver, taker)

    own, other = asked(world, by=ada), asked(world)

    assert [may_answer(own, again(one)) for one in (ada, bo, cy)] == [False, False, False]
    assert [may_answer(other, again(one)) for one in (ada, bo, cy)] == [True, True, False]


def test_a_vote_for_somebody_who_changes_it_by_hand_afterwards_counts_no_more(world: World):
    """R27."""
    grant(permission=APPROVE, quorum=2, shows=amount_alone)
    gil, tom, mia = person("gil", APPROVE, OPERATE), person("tom"), person("mia", APPROVE)
    lend(world, gil, tom)
    request = asked(world)
    answer(request, tom)
    change_by_hand(request, gil, to="Gil")

    answer(request, mia)

    request.refresh_from_db()
    assert request.state == ApprovalState.OPEN
    assert request.decisions.get(actor=tom).voided_at is not None


def test_who_changes_by_hand_what_no_fact_shows_does_not_approve_it(world: World):
    """R27: to whom it goes, while it is asked."""
    grant(permission=APPROVE, shows=amount_alone)
    operator, request = person("op", APPROVE, OPERATE), asked(world)
    change_by_hand(request, operator, to="me")

    assert is_refused(request, operator)
    assert not waiting_for(again(operator), now=world.clock.now()).exists()
    assert answer(request, person("mia", APPROVE)).state == ApprovalState.APPROVED


@pytest.mark.parametrize(("who", "although"), [("asker", "asked for it"), ("mia", "acts for who asked for it")])
def test_a_rule_that_an_approval_relaxes_is_marked_in_the_history(world: World, who: str, although: str):
    """R27."""
    grant(permission=APPROVE, exclude_requester=False, exclude_delegate=False)
    people = {"asker": person("asker", APPROVE), "mia": person("mia", APPROVE)}
    lend(world, people["asker"], people["mia"])
    request = asked(world, by=people["asker"])

    answer(request, people[who])

    assert RunEvent.objects.get(kind="approval.answered").data["although"] == although
    assert f"Approved by {who}, who {although}" in [line.text for line in api.explain(request.run_id).lines]


def test_who_had_a_hand_in_it_by_hand_is_marked_where_that_is_relaxed(world: World):
    grant(permission=APPROVE, exclude_requester=False, shows=amount_alone)
    operator, request = person("op", APPROVE, OPERATE), asked(world)
    change_by_hand(request, operator, to="me")

    answer(request, operator)

    assert RunEvent.objects.get(kind="approval.answered").data["although"] == "changed it by hand"


def test_who_has_got_an_own_right_meanwhile_answers_again(world: World):
    """The same answer is a repeat only while the first one counts."""
    grant(groups=("finance",), quorum=2)
    gil, tom, mia = person("gil", groups=("finance",)), person("tom"), person("mia", groups=("finance",))
    lend(world, gil, tom)
    request = asked(world)
    answer(request, tom)
    tom.groups.set(gil.groups.all())
    gil.groups.clear()

    answer(request, tom)
    answer(request, mia)

    request.refresh_from_db()
    assert request.state == ApprovalState.APPROVED
    assert [vote.for_name for vote in request.decisions.filter(voided_at=None)] == ["", ""]


@pytest.mark.parametrize("to", ["sk_" + "live_" + "0123456789abcdef", "x" * 300_000], ids=["a key", "too long"])
def test_facts_that_may_not_be_stored_are_refused_also_when_they_change(world: World, to: str):
    """P14, R31, R38."""
    found = {"to": "Ada"}
    grant(permission=APPROVE, shows=lambda run: Facts(binding={"amount": run.state.amount, **found}))
    mia, request = person("mia", APPROVE), asked(world)
    found["to"] = to

    with pytest.raises(InvalidState, match=r"looks like a key|bytes, the limit is"):
        answer(request, mia)

    request.refresh_from_db()
    assert (request.state, request.binding["to"]) == (ApprovalState.OPEN, "Ada")


@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_account_that_was_read_before_it_went_decides_nothing(world: World, is_deleted: bool):
    """R26: code of a project may keep a person for long."""
    grant(permission=APPROVE)
    mia, asker = person("mia", APPROVE), person("asker")
    request = asked(world, by=asker)
    for one in (mia, asker):
        if is_deleted:
            again(one).delete()
        else:
            User.objects.filter(pk=one.pk).update(is_active=False)

    for verb in (
        lambda: api.answer(request.pk, "approve", by=mia, facts_digest=request.facts_digest),
        lambda: api.ask_requester(request.pk, "Why?", by=mia),
        lambda: api.reassign(request.pk, mia, by=mia, reason="mine"),
        lambda: api.withdraw(request.pk, by=asker, reason="not needed"),
    ):
        with pytest.raises((NotAllowed, NotFoundError)):
            verb()

    assert ApprovalRequest.objects.get().state == ApprovalState.OPEN


def test_who_has_made_the_account_anew_is_still_who_asked_for_delegates_too(world: World):
    """R27."""
    grant(permission=APPROVE)
    asker = person("asker")
    request = asked(world, by=asker)
    asker.delete()
    request.refresh_from_db()
    anew, tom, mia = person("asker", APPROVE), person("tom"), person("mia", APPROVE)
    for taker in (tom, mia):
        lend(world, anew, taker)

    for one in (anew, tom, mia):
        assert is_refused(request, one)
        assert not waiting_for(again(one), now=world.clock.now()).exists()


def test_who_asked_does_not_choose_who_decides_by_lending_another_s_right(world: World):
    """R27: with the right to do so; nor does who has changed it by hand. The giver's own word is another thing."""
    grant(permission=APPROVE, shows=amount_alone)
    hr = person("hr", "durableflows.add_delegation", OPERATE)
    gil, tom = person("gil", APPROVE), person("tom")
    own, edited, other = asked(world, by=hr), asked(world), asked(world)
    change_by_hand(edited, hr, to="me")
    until = world.clock.now() + timedelta(days=2)
    api.delegate(tom, by=hr, giver=gil, until=until, reason="gil is ill")

    assert list(waiting_for(again(tom), now=world.clock.now())) == [other]
    assert is_refused(own, tom)
    assert is_refused(edited, tom)
    assert [may_answer(one, again(tom)) for one in (own, edited, other)] == [False, False, True]

    api.delegate(tom, by=gil, until=until + timedelta(days=1), reason="so it is")
    assert waiting_for(again(tom), now=world.clock.now()).count() == 3
    assert answer(own, tom).state == answer(edited, tom).state == ApprovalState.APPROVED


def nested() -> type[Workflow[GrantState]]:
    """It is asked in a child first, and then in the parent, which takes over whom the child has found."""
    grant(permission=APPROVE, shows=amount_alone)

    class Outer(Workflow[GrantState]):
        name, deadline = "outer", timedelta(days=60)

        @step(start=True, to="after")
        def begin(self, run: Run[GrantState]) -> StepReturn:
            return child("grant", {"amount": run.state.amount, "to": run.state.to}, then=self.after)

        @step(to="sign_off")
        def after(self, run: Run[GrantState]) -> None: ...

        sign_off = approval(
            title="Once more {amount}", shows=amount_alone, permission=APPROVE, approved="end", rejected="end"
        )

        @step(end=True)
        def end(self, run: Run[GrantState]) -> None: ...

    return Outer


def test_who_has_changed_the_parent_by_hand_does_not_approve_what_its_child_asks(world: World):
    """R27: the child is given what was changed."""
    run, operator = api.start(nested(), {"amount": USD_500}), person("op", APPROVE, OPERATE)
    api.pause(run.pk, reason="to look")
    api.edit(run.pk, by=operator, reason="so", changes={"to": "me"})
    api.resume(run.pk, reason="go on")
    world.run_until_idle()

    request = ApprovalRequest.objects.get(run__parent=run)
    assert is_refused(request, operator)
    assert not waiting_for(again(operator), now=world.clock.now()).exists()


def test_who_has_changed_the_child_by_hand_does_not_approve_what_its_parent_asks(world: World):
    """R27: the parent is given what the child has found."""
    run, operator = api.start(nested(), {"amount": USD_500}), person("op", APPROVE, OPERATE)
    world.run_until_idle()
    asked_first = ApprovalRequest.objects.get(run__parent=run)
    change_by_hand(asked_first, operator, to="me")
    answer(asked_first, person("mia", APPROVE))
    world.run_until_idle()

    assert is_refused(ApprovalRequest.objects.get(run=run), operator)


def test_who_has_made_the_account_anew_has_still_changed_it_by_hand(world: World):
    """R27."""
    grant(permission=APPROVE)
    operator, request = person("op", APPROVE, OPERATE), asked(world)
    change_by_hand(request, operator, to="me")
    operator.delete()

    with pytest.raises(NotAllowed, match="you have changed by hand what is asked here"):
        answer(request, person("op", APPROVE))
    assert answer(request, person("mia", APPROVE)).state == ApprovalState.APPROVED
