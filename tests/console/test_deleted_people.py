"""A person whose account is deleted stays in the history by name, and every page stays whole."""

from collections.abc import Callable

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db.models import SET_NULL, ForeignKey
from django.urls import reverse

from durableflows import api
from durableflows.models import ApprovalDecision, ApprovalRequest, RequestView, RunEvent
from tests.support.bonus import PERMISSION
from tests.support.doors import Admin, Outcome
from tests.support.pages import LIST, Ask, Browse, People, address, answer, rows, text

pytestmark = pytest.mark.django_db


def test_every_row_that_names_a_person_keeps_the_name_beside_the_account() -> None:
    """A new table with a person in it lets go of the account, and has a column for the name."""
    found = [
        (model, field)
        for app in ("durableflows", "customer_ops")
        if apps.is_installed(app)
        for model in apps.get_app_config(app).get_models()
        for field in model._meta.concrete_fields
        if isinstance(field, ForeignKey) and field.related_model is User
    ]

    assert len(found) >= 5
    for model, field in found:
        assert field.remote_field.on_delete is SET_NULL, f"{model.__name__}.{field.name} goes with the account"
        assert field.null
        names = {column.name for column in model._meta.concrete_fields}
        kept = {f"{field.name}_name", field.name.replace("_person", "_name")}
        assert kept & names, f"{model.__name__} does not keep the name of its {field.name}"


@pytest.mark.parametrize("who", ["asker", "manager", "viewer"])
def test_pages_and_history_stay_whole(who: str, ask: Ask, manager: User, person: People, browse: Browse) -> None:
    asked, waiting = ask("Ada"), ask("Bo")
    Admin(person("viewer", "durableflows.view_approvalrequest")).look(asked)
    answer(browse(manager), asked, comment="fine by me")
    Admin(manager).look(waiting)
    root = browse(person("root", is_superuser=True))
    history = list(RunEvent.objects.order_by("pk").values())

    User.objects.get(username=who).delete()

    run = reverse("admin:durableflows_workflowrun_change", args=[asked.run_id])
    pages = {path: root.get(path) for path in (address(asked), address(waiting), run, f"{LIST}?standing=all")}
    assert {page.status_code for page in pages.values()} == {200}
    assert who in text(pages[address(asked)])
    assert "manager" in text(pages[run])
    assert text(pages[f"{LIST}?standing=all"]).count("asker") >= 2
    assert list(RunEvent.objects.order_by("pk").values()) == history
    assert ApprovalDecision.objects.get().actor_name == "manager"
    assert set(RequestView.objects.values_list("person_name", flat=True)) >= {"viewer", "manager"}
    assert api.explain(asked.run_id).sentence
    for table in ("approvaldecision", "requestview", "runevent", "workflowrun"):
        assert root.get(f"/admin/durableflows/{table}/").status_code == 200


def test_a_request_whose_asker_is_gone_is_decided_by_others(
    ask: Ask, manager: User, person: People, browse: Browse
) -> None:
    asked = ask(by=person("leaver", PERMISSION))
    User.objects.get(username="leaver").delete()

    assert "leaver" in text(browse(manager).get(address(asked)))
    assert Admin(manager).answer(ApprovalRequest.objects.get()).outcome is Outcome.TAKEN


def test_a_vote_of_who_is_gone_does_not_count_and_stays_in_the_record(ask: Ask, manager: User, person: People) -> None:
    """Two must approve: who left, or came back under the same name, is not the second."""
    asked = ask(quorum=2)
    assert Admin(manager).answer(asked).outcome is Outcome.TAKEN
    manager.delete()

    again = Admin(person("manager", PERMISSION))
    again.answer(asked)

    assert ApprovalRequest.objects.get().state == "OPEN"
    assert ApprovalDecision.objects.count() == 2
    assert Admin(person("second", PERMISSION)).answer(asked).outcome is Outcome.TAKEN
    assert ApprovalRequest.objects.get().state == "APPROVED"


@pytest.mark.parametrize("change", [lambda user: user.delete(), lambda user: user.groups.clear()])
def test_a_deleted_approver_changes_no_row_but_the_account(
    change: Callable[[User], object], asked: ApprovalRequest, manager: User
) -> None:
    Admin(manager).answer(asked)
    names = list(ApprovalDecision.objects.values_list("actor_name", "verdict", "comment", "at", "permission"))

    change(manager)

    assert list(ApprovalDecision.objects.values_list("actor_name", "verdict", "comment", "at", "permission")) == names
    assert rows()[4] == RunEvent.objects.count()
