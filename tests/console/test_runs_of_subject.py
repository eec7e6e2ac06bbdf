"""The runs about an object on pages of a project: in its admin by a mixin, in its templates by a tag."""

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.template import Context, Template
from django.test import RequestFactory

from durableflows import Money, api
from durableflows.admin import RunsOfSubject
from durableflows.models import WorkflowRun
from tests.support.pages import HOSTILE, People, is_inert

if TYPE_CHECKING:
    AnyAdmin = admin.ModelAdmin[Any]
else:
    AnyAdmin = admin.ModelAdmin

pytestmark = pytest.mark.django_db


class Plain(RunsOfSubject, AnyAdmin):
    """A page that says nothing about its fields."""


class Placed(RunsOfSubject, AnyAdmin):
    """A page that has placed the runs itself."""

    fieldsets = [("All", {"fields": ["workflow_runs", "name"]})]


class Named(RunsOfSubject, AnyAdmin):
    """A page with its own fields, and nothing said about runs."""

    fields = ("name",)


@pytest.fixture
def group(db: None) -> Group:
    return Group.objects.create(name="buyers")


@pytest.fixture
def operator(person: People) -> User:
    return person("operator", "durableflows.operate_run", "auth.view_group", "auth.change_group", "auth.add_group")


def start(subject: Any, key: str = "bonus-ada") -> WorkflowRun:
    state = {"amount": Money(60000, "USD"), "customer": "Ada"}
    return api.start("bonus", state, key=key, subject=subject, version=1)


def shown(page: type[Any], group: Group | None, person: User) -> str:
    """The admin's page of the object, as the person sees it."""
    request = RequestFactory().get("/")
    request.user = person
    made = page(Group, admin.site)
    response = made.changeform_view(request, str(group.pk) if group else None)
    return str(response.render().content.decode())


def tagged(subject: Any, person: Any, rest: str = "") -> str:
    template = Template("{% load durableflows %}{% run_progress order" + rest + " %}")
    return template.render(Context({"order": subject, "user": person}))


@pytest.mark.parametrize("page", [Plain, Placed, Named])
def test_the_object_shows_its_runs_and_how_far_they_are(page: type[Any], group: Group, operator: User):
    run = start(group)

    text = shown(page, group, operator)

    assert text.count("bonus-ada") == 1
    assert f'href="/durableflows/runs/{run.pk}/"' in text
    assert "waits for a worker since" in text
    assert "durableflows/durableflows.css" in text


@pytest.mark.parametrize("page", [Plain, Placed, Named])
def test_a_new_object_has_none(page: type[Any], operator: User):
    assert "field-workflow_runs" not in shown(page, None, operator)


def test_an_object_without_runs_says_so(group: Group, operator: User):
    assert "No run is about this." in shown(Plain, group, operator)


def test_what_the_person_may_not_see_is_not_there(group: Group, person: People):
    start(group)
    clerk = person("clerk", "auth.view_group")

    assert "bonus-ada" not in shown(Plain, group, clerk)
    assert "bonus-ada" not in tagged(group, clerk)
    assert "bonus-ada" not in tagged(group, None)


def test_the_tag_shows_the_newest_runs(group: Group, operator: User):
    for number in range(5):
        start(group, f"bonus-{number}")

    text = tagged(group, operator)
    assert [number for number in range(5) if f"bonus-{number}" in text] == [2, 3, 4]
    assert "The newest 3 are shown." in text
    assert "bonus-0" in tagged(group, operator, " 5")
    assert "No run is about this." in tagged(Group(), operator)
    assert "No run is about this." in tagged(None, operator)


def test_hostile_words_are_words(group: Group, operator: User):
    start(group, HOSTILE[:200])

    assert is_inert(tagged(group, operator))
    assert is_inert(shown(Plain, group, operator))


def test_the_page_around_is_not_broken_by_what_is_not_known_of_tenants(group: Group, operator: User, settings: Any):
    start(group)
    settings.DURABLEFLOWS = {"TENANTS_OF": "tests.console.test_runs_of_subject.nobody_knows"}

    assert "No run is about this." in tagged(group, operator)


def nobody_knows(person: Any) -> Any:
    raise LookupError(str(person))
