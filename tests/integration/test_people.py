"""What people do with an open request beside answering it: hand it on, ask back, reply, withdraw."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from durableflows import AlreadyDecided, InvalidState, NotAllowed, NotFoundError, TooLate, api
from durableflows.core.states import ApprovalState, RunState
from durableflows.models import ApprovalRequest, RequestNote, RunEvent, WorkflowRun
from durableflows.testing import Boundary, Crash, crash_at
from tests.support import told_people
from tests.support.offices import OPERATE, Office, answer, office, person
from tests.support.play import state_of
from tests.support.told_people import TOLD, told

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def desk() -> Iterator[Office]:
    with office() as made:
        yield made


def kinds(request: ApprovalRequest) -> list[str]:
    """The request's story in the run's history, its asking left out."""
    rows = RunEvent.objects.filter(run=request.run_id, kind__startswith="approval.").order_by("sequence")
    return [kind.removeprefix("approval.") for kind in rows.values_list("kind", flat=True)][1:]


# Reassign


def test_a_request_is_put_before_a_colleague_who_alone_is_told(desk: Office):
    request = desk.asked()
    told_people.forget()

    given = api.reassign(request.pk, desk.cy, by=desk.bo, reason="Cy knows the customer")
    desk.world.run_until_idle()

    assert (given.assignee, given.assignee_name) == (desk.cy, "cy")
    assert told() == [("cy", "assigned")]
    assert TOLD[0].lines[:2] == ("bo hands this to you:", "Cy knows the customer")
    assert kinds(request) == ["assigned"]


def test_it_gives_nobody_a_right_and_takes_nobody_s(desk: Office):
    request = desk.asked()
    with pytest.raises(NotAllowed, match="cannot be given to eve"):
        api.reassign(request.pk, person("eve"), by=desk.bo, reason="she is here")
    with pytest.raises(NotAllowed, match="asked for this"):
        api.reassign(request.pk, desk.ada, by=desk.bo, reason="she knows best")
    api.reassign(request.pk, desk.cy, by=desk.bo, reason="Cy knows the customer")

    answer(request, desk.bo)

    assert ApprovalRequest.objects.get().state == ApprovalState.APPROVED


def test_whoever_may_answer_takes_it_and_needs_no_notice_of_that(desk: Office):
    request = desk.asked()
    told_people.forget()

    assert api.reassign(request.pk, desk.bo, by=desk.bo, reason="mine").assignee == desk.bo
    desk.world.run_until_idle()

    assert told() == []


def test_the_same_again_is_quiet(desk: Office):
    request = desk.asked()
    for _ in range(2):
        api.reassign(request.pk, desk.cy, by=desk.bo, reason="Cy knows the customer")

    assert kinds(request) == ["assigned"]
    assert RequestNote.objects.count() == 1


def test_who_asked_does_not_choose_who_decides(desk: Office):
    """R27: not even as an operator."""
    operator = person("ann", OPERATE)
    request = desk.asked(by=operator)

    with pytest.raises(NotAllowed, match="asked for this yourself"):
        api.reassign(request.pk, desk.bo, by=operator, reason="a friend")
    with pytest.raises(NotAllowed):
        api.reassign(desk.asked("Eve").pk, desk.bo, by=desk.ada, reason="a friend")


def test_who_may_see_it_alone_does_not_hand_it_on(desk: Office):
    request = desk.asked()

    with pytest.raises(NotAllowed, match="answer_approval is needed"):
        api.reassign(request.pk, desk.cy, by=person("eve", "view_approvalrequest"), reason="she has time")


def test_an_operator_and_the_project_s_own_code_may_hand_it_on(desk: Office):
    request = desk.asked()

    assert api.reassign(request.pk, desk.bo, by=desk.di, reason="Bo is on duty").assignee == desk.bo
    assert api.reassign(request.pk, desk.cy, reason="by the rota").assignee == desk.cy
    assert [note.author_name for note in request.notes.all()] == ["di", ""]


def test_whoever_comes_after_an_escalation_is_not_bound_to_the_old_assignee(desk: Office):
    request = desk.asked()
    api.reassign(request.pk, desk.cy, by=desk.bo, reason="Cy knows the customer")
    desk.world.run_until_idle()
    told_people.forget()
    desk.world.clock.move_to(request.expires_at)

    desk.world.run_until_idle()

    assert told() == [("di", "escalated")]


# Question and reply


def test_a_question_reaches_who_asked_and_the_reply_whoever_put_it(desk: Office):
    request = desk.asked()
    told_people.forget()

    question = api.ask_requester(request.pk, "Which order is it?", by=desk.bo)
    desk.world.run_until_idle()
    reply = api.reply(request.pk, "The second one.", by=desk.ada)
    desk.world.run_until_idle()

    assert told() == [("ada", "question"), ("bo", "reply")]
    assert [notice.lines for notice in TOLD] == [
        ("bo asks:", "Which order is it?"),
        ("ada replies:", "The second one."),
    ]
    assert (reply.answers, reply.number, question.number) == (question, 2, 1)
    assert kinds(request) == ["question", "reply"]
    assert ApprovalRequest.objects.get().state == ApprovalState.OPEN


def test_each_asks_and_the_last_open_question_is_answered_first(desk: Office):
    request = desk.asked()
    first, second = api.ask_requester(request.pk, "Why?", by=desk.bo), api.ask_requester(request.pk, "Who?", by=desk.cy)

    assert api.reply(request.pk, "My sister.", by=desk.ada).answers == second
    assert api.reply(request.pk, "She moves.", by=desk.ada).answers == first
    with pytest.raises(InvalidState, match="nobody has asked"):
        api.reply(request.pk, "That is all.", by=desk.ada)


def test_a_double_click_asks_and_replies_once(desk: Office):
    request = desk.asked()
    asked = [api.ask_requester(request.pk, "Why?", by=desk.bo).pk for _ in range(2)]
    said = [api.reply(request.pk, "She moves.", by=desk.ada).pk for _ in range(2)]

    assert len({*asked}) == len({*said}) == 1
    assert kinds(request) == ["question", "reply"]
    assert api.ask_requester(request.pk, "Why?", by=desk.bo).pk not in asked, "after a reply it is another question"


def test_secrets_are_masked_and_empty_words_refused(desk: Office):
    request = desk.asked()

    note = api.ask_requester(request.pk, "Is it sk_live_51HxAbCdEfGhIjKlMnOpQrStUv?", by=desk.bo)

    assert "sk_live_51Hx" not in note.text
    for words in ("", " \u200b ", "x" * 4001, "a\x00b"):
        with pytest.raises(InvalidState):
            api.ask_requester(request.pk, words, by=desk.bo)


def test_nobody_can_be_asked_where_nobody_asked(desk: Office):
    with pytest.raises(InvalidState, match="nobody can be asked"):
        api.ask_requester(desk.asked(by=None).pk, "Why?", by=desk.bo)


# Withdraw


def test_who_asked_withdraws_and_the_run_is_cancelled(desk: Office):
    request = desk.asked()
    told_people.forget()

    withdrawn = api.withdraw(request.pk, by=desk.ada, reason="she moved away")
    desk.world.run_until_idle()

    assert withdrawn.state == ApprovalState.CLOSED
    assert state_of(request.run_id) is RunState.CANCELLED
    assert told() == [("bo", "withdrawn"), ("cy", "withdrawn")]
    assert TOLD[0].lines == ("ada withdrew it:", "she moved away")
    assert kinds(request) == ["withdrawn", "closed"]
    with pytest.raises(AlreadyDecided, match="she moved away"):
        answer(request, desk.bo)


def test_a_second_withdrawal_is_quiet(desk: Office):
    request = desk.asked()
    api.withdraw(request.pk, by=desk.ada, reason="she moved away")

    assert api.withdraw(request.pk, by=desk.ada, reason="she moved away").state == ApprovalState.CLOSED
    assert kinds(request) == ["withdrawn", "closed"]


def test_what_is_decided_cannot_be_withdrawn(desk: Office):
    request = desk.asked()
    answer(request, desk.bo)

    with pytest.raises(AlreadyDecided, match="approved by bo"):
        api.withdraw(request.pk, by=desk.ada, reason="she moved away")
    assert WorkflowRun.objects.get().cancel_asked_at is None


# At every verb

Verb = Callable[[ApprovalRequest, Any], object]
VERBS: dict[str, Verb] = {
    "reassign": lambda request, by: api.reassign(request.pk, User.objects.get(username="cy"), by=by, reason="x"),
    "ask_requester": lambda request, by: api.ask_requester(request.pk, "Why?", by=by),
    "reply": lambda request, by: api.reply(request.pk, "So.", by=by),
    "withdraw": lambda request, by: api.withdraw(request.pk, by=by, reason="x"),
}
RIGHTLY = {"reassign": "bo", "ask_requester": "bo", "reply": "ada", "withdraw": "ada"}


@pytest.fixture(params=sorted(VERBS))
def verb(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ready(desk: Office, verb: str) -> ApprovalRequest:
    """A request on which the verb can be done."""
    request = desk.asked()
    if verb == "reply":
        api.ask_requester(request.pk, "Why?", by=desk.cy)
    return request


def before(request: ApprovalRequest) -> tuple[object, ...]:
    """What a verb that is refused may not change."""
    request.refresh_from_db()
    return (request.state, request.assignee_id, request.notes.count(), RunEvent.objects.count())


def test_who_may_not_is_refused_and_nothing_changes(desk: Office, verb: str):
    request = ready(desk, verb)
    seen = before(request)
    wrong = [desk.ada, desk.di] if verb == "ask_requester" else [desk.ada] if verb == "reassign" else [desk.bo, desk.di]

    for by in wrong:
        with pytest.raises(NotAllowed):
            VERBS[verb](request, by)
    with pytest.raises(NotFoundError):
        VERBS[verb](request, person("eve"))
    assert before(request) == seen


def test_who_is_not_active_any_more_is_refused(desk: Office, verb: str):
    request = ready(desk, verb)
    User.objects.filter(username=RIGHTLY[verb]).update(is_active=False)
    by = User.objects.get(username=RIGHTLY[verb])
    seen = before(request)

    with pytest.raises((NotAllowed, NotFoundError)):
        VERBS[verb](request, by)
    assert before(request) == seen


def test_after_its_time_or_its_run_s_it_is_too_late(desk: Office, verb: str):
    """No sweep has been: the clock decides."""
    request = ready(desk, verb)
    by = User.objects.get(username=RIGHTLY[verb])
    desk.world.clock.move_to(request.expires_at)
    seen = before(request)

    with pytest.raises(TooLate):
        VERBS[verb](request, by)
    assert before(request) == seen


def test_a_request_that_is_not_there_is_not_found(desk: Office, verb: str):
    by = User.objects.get(username=RIGHTLY[verb])
    for wrong in (uuid4(), "no id"):
        gone = ApprovalRequest(pk=wrong)
        with pytest.raises(NotFoundError):
            VERBS[verb](gone, by)


def test_an_id_that_is_none_is_not_found_for_code_of_the_project_either(desk: Office):
    with pytest.raises(NotFoundError):
        api.reassign("no id", desk.cy, reason="by the rota")
    assert not api.may_answer("no id", by=desk.bo)


def test_a_crash_before_the_commit_leaves_nothing_and_the_same_again_does_it_once(desk: Office, verb: str):
    request = ready(desk, verb)
    by = User.objects.get(username=RIGHTLY[verb])
    seen = before(request)
    with crash_at(Boundary.PEOPLE_BEFORE_COMMIT), pytest.raises(Crash):
        VERBS[verb](request, by)
    assert before(request) == seen

    with crash_at(Boundary.PEOPLE_AFTER_COMMIT), pytest.raises(Crash):
        VERBS[verb](request, by)
    done = before(request)
    VERBS[verb](request, by)

    assert done != seen
    assert before(request) == done
