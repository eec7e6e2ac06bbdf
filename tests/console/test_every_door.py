"""Whatever the door: the same checks, one decision, nothing by looking, nobody for himself (R10, R22, R24 to R27)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import override_settings

from durableflows import api, clock
from durableflows.errors import TenantsUnknown
from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, StepRun, WorkflowRun
from tests.support.bonus import OTHER_PERMISSION, PERMISSION, SHOWN
from tests.support.doors import DOORS, WEB, Outcome, Reply, Visit, Web
from tests.support.pages import Ask, People, rows

pytestmark = pytest.mark.django_db

Enter = Callable[..., Visit]
METHODS = ("get", "head", "options")


@pytest.fixture(params=DOORS)
def enter(request: pytest.FixtureRequest) -> Enter:
    """A person enters by each of the doors."""
    door: Enter = DOORS[request.param]
    return door


@pytest.fixture(params=WEB)
def visit(request: pytest.FixtureRequest) -> Callable[..., Web]:
    """A person enters by each of those that have pages."""
    door: Callable[..., Web] = WEB[request.param]
    return door


def test_whoever_may_decides(enter: Enter, asked: ApprovalRequest, manager: User) -> None:
    """R25: a user with the right succeeds through each of the offered ways."""
    person = enter(manager)

    shown = person.look(asked)
    reply = person.answer(asked, digest=shown.digest, comment="fine by me")

    assert shown.offers
    assert "Bonus for Ada" in shown.text
    assert reply.outcome is Outcome.TAKEN
    decision = ApprovalDecision.objects.get()
    assert (decision.actor_name, decision.comment, decision.permission) == ("manager", "fine by me", PERMISSION)
    assert decision.facts_digest == asked.facts_digest
    assert decision.door
    assert StepRun.objects.filter(run=asked.run_id, name="pay").count() == 1


def test_a_second_person_is_told_who_decided_what_and_when(
    enter: Enter, asked: ApprovalRequest, manager: User, person: People
) -> None:
    """R22."""
    second = enter(person("second", PERMISSION))
    enter(manager).answer(asked)
    before = rows()

    reply = second.answer(asked, "reject")

    assert reply.outcome is Outcome.LATE
    at = ApprovalDecision.objects.get().at
    assert f"lready approved by manager at {at:%Y-%m-%d %H:%M}" in reply.text
    assert rows() == before


def test_the_same_answer_again_changes_nothing_and_the_opposite_is_refused(
    enter: Enter, asked: ApprovalRequest, manager: User
) -> None:
    """R22."""
    person = enter(manager)
    person.answer(asked)
    before = rows()

    assert person.answer(asked).outcome is Outcome.AGAIN
    assert person.answer(asked, "reject").outcome is Outcome.LATE
    assert rows() == before
    assert RunEvent.objects.filter(kind="approval.answered").count() == 1


@pytest.mark.parametrize("first", DOORS)
def test_who_has_answered_at_one_door_is_known_at_all(first: str, enter: Enter, ask: Ask, manager: User) -> None:
    """R22: the same from the admin action and from the inbox page."""
    asked = ask()
    DOORS[first](manager).answer(asked)
    before = rows()

    assert enter(manager).answer(asked).outcome is Outcome.AGAIN
    assert not enter(manager).look(asked).offers
    assert rows() == before


def test_an_expired_request_is_refused_before_any_sweep(enter: Enter, asked: ApprovalRequest, manager: User) -> None:
    """R10 (b)."""
    person = enter(manager)
    digest = person.look(asked).digest
    ApprovalRequest.objects.update(expires_at=clock.now() - timedelta(seconds=1))
    before = rows()

    reply = person.answer(asked, digest=digest)

    assert reply.outcome is Outcome.LATE
    assert "expired" in reply.text
    assert rows() == before


def test_a_request_of_a_run_whose_deadline_has_passed_is_refused(
    enter: Enter, asked: ApprovalRequest, manager: User
) -> None:
    """R10 (c)."""
    WorkflowRun.objects.update(deadline_at=clock.now() - timedelta(seconds=1))
    before = rows()

    reply = enter(manager).answer(asked)

    assert reply.outcome is Outcome.LATE
    assert "deadline" in reply.text
    assert rows() == before


def test_a_withdrawn_run_is_refused_with_the_reason(enter: Enter, asked: ApprovalRequest, manager: User) -> None:
    person = enter(manager)
    digest = person.look(asked).digest
    api.cancel(asked.run_id, reason="changed his mind")
    before = rows()

    reply = person.answer(asked, digest=digest)

    assert reply.outcome is Outcome.LATE
    assert "lready closed" in reply.text
    assert rows() == before


def test_facts_that_changed_after_looking_are_shown_and_decide_nothing(
    enter: Enter, asked: ApprovalRequest, manager: User
) -> None:
    person = enter(manager)
    digest = person.look(asked).digest
    SHOWN["amount"] = {"amount_minor": 90000, "currency": "USD"}

    reply = person.answer(asked, digest=digest)

    assert reply.outcome is Outcome.CHANGED
    assert "amount" in reply.text
    assert not ApprovalDecision.objects.exists()
    assert ApprovalRequest.objects.get().state == "OPEN"
    fresh = person.look(ApprovalRequest.objects.get())
    assert fresh.digest != digest
    assert person.answer(ApprovalRequest.objects.get(), digest=fresh.digest).outcome is Outcome.TAKEN


def test_a_made_up_digest_decides_nothing(enter: Enter, asked: ApprovalRequest, manager: User) -> None:
    assert enter(manager).answer(asked, digest="0" * 64).outcome is Outcome.CHANGED
    assert not ApprovalDecision.objects.exists()


def test_looking_never_decides(visit: Callable[..., Web], asked: ApprovalRequest, manager: User) -> None:
    """R24: GET, HEAD and OPTIONS five times, logged out and in, with the answer in the address."""
    inside, outside = visit(manager), visit(None)
    address = inside.address(asked)
    query = f"{'&' if '?' in address else '?'}verdict=approve&facts_digest={asked.facts_digest}"
    before = rows()

    for someone in (inside, outside):
        for method in METHODS:
            for _ in range(5):
                getattr(someone.client, method)(address + query)

    assert rows() == before
    assert inside.answer(asked).outcome is Outcome.TAKEN


def test_an_answer_needs_a_post_with_the_token_in_its_body(
    visit: Callable[..., Web], asked: ApprovalRequest, manager: User
) -> None:
    """R24: POST without CSRF token; POST with the token in the query string only."""
    person = visit(manager, strict=True)
    token = str(person.client.get(person.address(asked), follow=True).context["csrf_token"])
    fields = person.fields(asked, "approve", asked.facts_digest, "")
    before = rows()

    assert person.client.post(person.target(asked), fields).status_code == 403
    in_query = f"{person.target(asked)}?csrfmiddlewaretoken={token}"
    assert person.client.post(in_query, fields).status_code == 403
    assert rows() == before
    taken = person.client.post(person.target(asked), {**fields, "csrfmiddlewaretoken": token})
    assert person.judge(taken).outcome is Outcome.TAKEN


def test_an_answer_in_the_address_alone_decides_nothing(
    visit: Callable[..., Web], asked: ApprovalRequest, manager: User
) -> None:
    person = visit(manager)
    fields = person.fields(asked, "approve", asked.facts_digest, "")
    before = rows()

    response = person.client.post(person.target(asked), query_params=fields)

    assert response.status_code == 400
    assert rows() == before


def test_nobody_answers_without_logging_in(visit: Callable[..., Web], asked: ApprovalRequest) -> None:
    """R25."""
    before = rows()

    assert visit(None).answer(asked).is_shut
    assert "Bonus for Ada" not in visit(None).look(asked).text
    assert rows() == before


@pytest.mark.parametrize(
    "rights",
    [
        (),
        ("durableflows.view_approvalrequest", "durableflows.change_approvalrequest"),
        (OTHER_PERMISSION, "durableflows.answer_approval"),
        ("durableflows.operate_run", "durableflows.view_workflowrun"),
    ],
)
def test_without_the_right_nobody_answers(
    rights: tuple[str, ...], enter: Enter, asked: ApprovalRequest, person: People
) -> None:
    """R25."""
    someone = enter(person("someone", *rights))
    before = rows()

    shown, reply = someone.look(asked), someone.answer(asked)

    assert reply.is_shut
    assert not shown.offers
    assert rows() == before


@pytest.mark.parametrize("change", ["right", "group", "account", "gone", "tenant"])
def test_what_was_lost_between_looking_and_answering_is_lost(
    change: str, enter: Enter, asked: ApprovalRequest, person: People
) -> None:
    """R26."""
    boss = person("boss")
    group = Group.objects.create(name="bosses")
    group.permissions.add(Permission.objects.get(content_type__app_label="auth", codename="change_group"))
    boss.groups.add(group)
    someone = enter(boss)
    digest = someone.look(asked).digest
    assert digest
    lose(change, boss, group, asked)
    before = rows()

    try:
        reply = someone.answer(asked, digest=digest)
    except User.DoesNotExist:
        assert change == "gone"
    else:
        assert reply.is_shut
    assert rows() == before
    assert ApprovalRequest.objects.get().state == "OPEN"


def lose(change: str, boss: User, group: Group, asked: ApprovalRequest) -> None:
    match change:
        case "right":
            group.permissions.clear()
        case "group":
            boss.groups.clear()
        case "account":
            User.objects.filter(pk=boss.pk).update(is_active=False)
        case "gone":
            boss.delete()
        case "tenant":
            ApprovalRequest.objects.filter(pk=asked.pk).update(tenant="another")


@pytest.mark.parametrize("is_superuser", [False, True])
def test_nobody_decides_the_own_request(is_superuser: bool, enter: Enter, ask: Ask, person: People) -> None:
    """R27."""
    both = person("both", PERMISSION, is_superuser=is_superuser)
    asked = ask(by=both)
    someone, before = enter(both), rows()

    shown, reply = someone.look(asked), someone.answer(asked)

    assert reply.is_shut
    assert not shown.offers
    assert "ou asked for this yourself" in reply.text
    assert rows() == before


def test_somebody_else_decides_it(enter: Enter, ask: Ask, person: People) -> None:
    """R27: a different entitled person can approve."""
    asked = ask(by=person("both", PERMISSION, is_superuser=True))

    assert enter(person("other", PERMISSION)).answer(asked).outcome is Outcome.TAKEN


def test_an_account_that_is_made_anew_under_the_same_name_is_the_same_person(
    enter: Enter, ask: Ask, person: People
) -> None:
    """R27, in a roundabout way: whoever asked deletes the own account and makes it again."""
    asked = ask(by=person("both", PERMISSION))
    User.objects.get(username="both").delete()
    someone, before = enter(person("both", PERMISSION)), rows()

    assert someone.answer(asked).is_shut
    assert not someone.look(asked).offers
    assert rows() == before


@pytest.mark.parametrize("tenants", ["tests.support.tenants.of", "tests.support.tenants.lost"])
def test_a_person_of_another_tenant_answers_nothing(
    tenants: str, enter: Enter, asked: ApprovalRequest, person: People
) -> None:
    """R25: ids outside of the visible set."""
    ApprovalRequest.objects.update(tenant="acme")
    stranger = enter(person("other-bob", PERMISSION, "durableflows.view_approvalrequest"))
    before = rows()

    with override_settings(DURABLEFLOWS={"TENANTS_OF": tenants}):
        assert is_shut(lambda: stranger.answer(asked))
    assert rows() == before


def is_shut(answer: Callable[[], Reply]) -> bool:
    """A project's own code gets the error itself where nobody can say in which tenants the person acts."""
    try:
        return answer().is_shut
    except TenantsUnknown:
        return True


POSTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("", {"action": "delete_selected", "_selected_action": "{id}", "post": "yes"}),
    ("", {"action": "approve", "_selected_action": "{id}", "select_across": "1"}),
    ("", {"form-TOTAL_FORMS": "1", "form-INITIAL_FORMS": "1", "form-0-id": "{id}", "form-0-state": "APPROVED"}),
    ("add/", {"title": "x", "state": "APPROVED"}),
    ("{id}/change/", {"state": "APPROVED", "_save": "1"}),
    ("{id}/change/", {"state": "APPROVED", "_saveasnew": "1"}),
    ("{id}/delete/", {"post": "yes"}),
    ("{id}/decided/", {"verdict": "approve"}),
    ("export/decisions.csv", {"verdict": "approve"}),
)


@pytest.mark.parametrize("who", ["superuser", "staff", "anonymous"])
@pytest.mark.parametrize(("path", "fields"), POSTS)
def test_forms_that_nobody_offers_change_nothing(
    path: str, fields: dict[str, Any], who: str, asked: ApprovalRequest, person: People
) -> None:
    """R25: bulk actions by name, the state field on every form of the admin, deletion."""
    rights = ("durableflows.view_approvalrequest", "durableflows.change_approvalrequest")
    people = {
        "superuser": lambda: person("root", is_superuser=True),
        "staff": lambda: person("viewer", *rights, "durableflows.delete_approvalrequest"),
        "anonymous": lambda: None,
    }
    client = WEB["admin page"](people[who]()).client
    before = rows()

    given = {name: value.format(id=asked.pk) for name, value in fields.items()}
    response = client.post(f"/admin/durableflows/approvalrequest/{path.format(id=asked.pk)}", given)

    assert response.status_code in (200, 302, 403, 404, 405)
    assert rows() == before
