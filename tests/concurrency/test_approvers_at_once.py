"""Several people and sweeps at one request at the same instant: each right counts once, and one value is approved."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from durableflows import AlreadyDecided, Approvers, Band, Escalate, Money, TooLate, api, clock
from durableflows.core.states import ApprovalState
from durableflows.models import ApprovalRequest, RunEvent, WorkflowRun
from durableflows.services import approvals, expiry, sweeps, unanswerable
from durableflows.testing import World
from tests.support.asking import APPROVE, DIRECT, PAID, USD_500, Lower, again, answer, asked, change_data, grant, person
from tests.support.rivals import at_once

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

ROUNDS = 10
AMOUNTS = tuple(Money(minor, "USD") for minor in (10_000, 20_000, 30_000))


def answering(request: ApprovalRequest, by: User, **given: Any) -> Callable[[], object]:
    """An answer to what the request asks now, by somebody whose rights nobody has looked at."""
    return partial(api.answer, request.pk, "approve", by=again(by), facts_digest=request.facts_digest, **given)


def test_of_a_quorum_each_person_counts_once(world: World):
    """R22: three at once, one of whom clicks twice, where two are needed."""
    grant(groups=("finance",), quorum=2)
    fay, flo, fred = (person(name, groups=("finance",)) for name in ("fay", "flo", "fred"))
    for _ in range(ROUNDS):
        request, sent = asked(world), len(world.sent)

        results = at_once(*(answering(request, by) for by in (fay, fay, flo, fred)))

        request.refresh_from_db()
        assert request.state == ApprovalState.APPROVED
        assert request.decisions.filter(voided_at=None).count() == 2
        assert len({vote.actor_id for vote in request.decisions.all()}) == 2
        assert all(isinstance(one, ApprovalRequest | AlreadyDecided) for one in results)
        assert len(world.sent) == sent + 1
        world.run_until_idle()
    assert [USD_500] * ROUNDS == PAID


def test_of_several_amounts_one_is_approved_and_paid(world: World):
    """P9, R22: the value that is paid is the one of the decision that won."""
    grant(permission=APPROVE, edits=Lower)
    people = [person(f"mia{number}", APPROVE) for number in range(3)]
    for _ in range(ROUNDS):
        request = asked(world)
        PAID.clear()

        at_once(*(answering(request, by, edits={"amount": amount}) for by, amount in zip(people, AMOUNTS, strict=True)))
        world.run_until_idle()

        won = request.decisions.get()
        assert [AMOUNTS[int(won.actor_name[-1])]] == PAID
        assert won.edits["amount"]["amount_minor"] == PAID[0].amount_minor


def test_who_is_asked_no_more_does_not_answer_what_was_handed_on_meanwhile(world: World):
    """P9, R26: the right was looked at for others than are asked under the lock."""
    grant(permission=APPROVE, on_expiry=Escalate(groups=("board",)))
    mia, ben = person("mia", APPROVE), person("ben", groups=("board",))
    for _ in range(ROUNDS):
        request = asked(world)
        world.clock.move_to(request.expires_at)

        mias, bens, *_ = at_once(
            answering(request, mia),
            answering(request, ben),
            lambda: sweeps.expire_requests(clock.now()),
            lambda: sweeps.expire_requests(clock.now()),
        )
        world.run_until_idle()

        request.refresh_from_db()
        assert not isinstance(mias, ApprovalRequest)
        assert isinstance(bens, ApprovalRequest) is (request.state == ApprovalState.APPROVED)
        assert RunEvent.objects.filter(run=request.run_id, kind="approval.escalated").count() == 1
        assert request.addressees.count() == 1


def test_an_answer_that_was_checked_against_other_people_is_refused(world: World):
    """P9: it is put to others between the look at rights and the lock, by whatever verb."""
    grant(permission=APPROVE)
    mia, request = person("mia", APPROVE), asked(world)

    given = approvals._checked(approvals.Answer("approve", mia, request.facts_digest, "", "api", ""))
    seen = approvals._look(request, given)
    ApprovalRequest.objects.filter(pk=request.pk).update(permission="", people=["ada"])

    with pytest.raises(TooLate, match="handed on to ada"):
        approvals._answer(request.run_id, request.step_id, request.pk, given, seen)
    assert not request.decisions.exists()


def test_a_vote_that_comes_while_it_is_handed_on_is_looked_at_before_it_counts(world: World):
    """P9: the next people's rights were compared with other votes; the next sweep compares them again."""
    grant(permission=APPROVE, quorum=2, on_expiry=Escalate(DIRECT, quorum=1))
    mia, request = person("mia", APPROVE), asked(world)
    before = expiry._look(request)
    answer(request, mia)
    world.clock.move_to(request.expires_at)

    assert not expiry._expire(request.run_id, request.step_id, request.pk, before)
    assert expiry.expire(request.pk)

    request.refresh_from_db()
    assert (request.ladder_position, request.state) == (1, ApprovalState.OPEN)
    assert request.decisions.get().voided_at is not None


def test_votes_that_are_enough_for_the_next_people_decide_once(world: World):
    """R10, R22: two sweeps hand on a request whose votes are enough there."""
    grant(permission=APPROVE, quorum=2, on_expiry=Escalate(DIRECT, quorum=1))
    both = person("both", APPROVE, DIRECT)
    for _ in range(ROUNDS):
        request = asked(world)
        answer(request, both)
        world.clock.move_to(request.expires_at)
        sent = len(world.sent)

        at_once(*(lambda: sweeps.expire_requests(clock.now()) for _ in range(3)))

        assert len(world.sent) == sent + 1
        world.run_until_idle()
        kinds = Counter(RunEvent.objects.filter(run=request.run_id).values_list("kind", flat=True))
        assert kinds["approval.closed"] == kinds["approval.escalated"] == 1
    assert len(PAID) == ROUNDS


def test_a_changed_amount_is_put_to_others_once(world: World):
    """P9: two come with the page of before; the request is asked anew of the other people once, with one time."""
    bands = (Band(USD_500, Approvers(APPROVE)), Band(None, Approvers(groups=("finance",))))
    grant(bands=bands, amount="amount", expires=timedelta(days=2))
    mia, max_ = person("mia", APPROVE), person("max", APPROVE)
    for _ in range(ROUNDS):
        request = asked(world)
        calls = [answering(request, by) for by in (mia, max_)]
        change_data(request.run_id, amount=Money(50_001, "USD"))

        at_once(*calls)

        request.refresh_from_db()
        assert (request.state, request.groups) == (ApprovalState.OPEN, ["finance"])
        assert RunEvent.objects.filter(run=request.run_id, kind="approval.facts_changed").count() == 1
        assert not request.decisions.exists()


def test_nobody_is_noticed_once_by_several_tickers(world: World):
    """R09, R26."""
    grant(people=("ada",))
    ada, request = person("ada"), asked(world)
    ada.delete()

    at_once(*(lambda: unanswerable._mark(request.pk, can_be_answered=False) for _ in range(4)))

    assert RunEvent.objects.filter(run=request.run_id, kind="approval.unanswerable").count() == 1
    run = WorkflowRun.objects.get(pk=request.run_id)
    assert run.event_sequence == RunEvent.objects.filter(run=run).count()
