"""The list of runs: saved views, fields, a search, pages by place; the same few queries however many runs there are."""

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from durableflows import Money, api, clock
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.reading import window
from tests.support.many import copy_run
from tests.support.pages import HOSTILE, Ask, Browse, People, is_inert, text

pytestmark = pytest.mark.django_db

RUNS = "/durableflows/runs/"
NAMES = ("ada", "bo", "cy", "di", "ed")


@pytest.fixture
def client(operator: User, browse: Browse) -> Client:
    return browse(operator)


def start(name: str, by: User | None = None, **options: Any) -> WorkflowRun:
    state = {"amount": Money(60000, "USD"), "customer": name}
    return api.start("bonus", state, key=f"bonus-{name}", by=by, version=1, **options)


def listed(page: str) -> list[str]:
    """The runs that are listed, in order, by the names in their keys."""
    found = [(page.index(f"bonus-{name}"), name) for name in NAMES if f"bonus-{name}" in page]
    return [name for _, name in sorted(found)]


def show(client: Client, **query: str) -> list[str]:
    response = client.get(RUNS, query)
    assert response.status_code == 200
    return listed(text(response))


def put(run: WorkflowRun, **values: Any) -> None:
    WorkflowRun.objects.filter(pk=run.pk).update(**values)


def test_a_label_is_found_by_its_name_and_value(client: Client):
    start("ada", labels={"team": "payments", "odd__name's": "a=b"})
    start("bo", labels={"team": "support"})
    start("cy")

    assert show(client, label="team=payments") == ["ada"]
    assert show(client, label=" team = support ") == ["bo"]
    assert show(client, label="odd__name's=a=b") == ["ada"]
    assert show(client, label="team=pay") == show(client, label="none=1") == []


@pytest.mark.parametrize("label", ["team", "team=", "=payments", "="])
def test_a_label_without_a_value_is_refused_in_words(label: str, client: Client):
    start("ada", labels={"team": "payments"})

    page = unescape(text(client.get(RUNS, {"label": label})))

    assert f"The label {label}: say it as name=value." in page
    assert listed(page) == []


def test_who_has_no_right_sees_the_own_runs_alone(person: People, browse: Browse):
    own, other = person("own"), person("other")
    start("ada", own)
    start("bo", other)

    assert show(browse(own)) == ["ada"]
    assert 'href="/durableflows/runs/"' not in text(browse(own).get("/durableflows/inbox/"))


def test_strangers_are_sent_to_log_in():
    assert Client().get(RUNS)["Location"] == "/login/?next=/durableflows/runs/"


def test_a_run_is_listed_in_words(client: Client, asker: User):
    run = start("ada", asker)
    put(run, state="PARKED", parked_reason="error in our code", parked_detail="KeyError: 'x'")

    page = text(client.get(RUNS))

    for words in ("bonus-ada", "needs attention", "error in our code: KeyError", "asker", "0 minutes ago"):
        assert words in page.replace("&#x27;", "'").replace("\u00a0", " ")


def test_saved_views_keep_what_they_say(client: Client):
    ada, bo, cy, di, ed = (start(name) for name in NAMES)
    for run in (ada, cy, di, ed):
        StepRun.objects.filter(run=run).update(resend_at=clock.now() + timedelta(hours=1))
    StepRun.objects.filter(run=bo).update(resend_at=clock.now() - timedelta(minutes=5))
    put(cy, state="PARKED", parked_reason="error in our code")
    put(di, state="PARKED", parked_reason="paused")
    put(ed, state="FAILED", ended_at=clock.now())

    assert show(client) == ["ed", "di", "cy", "bo", "ada"]
    assert show(client, show="live") == ["di", "cy", "bo", "ada"]
    assert show(client, show="stuck") == ["cy", "bo"]
    assert show(client, show="failing") == ["ed", "cy"]
    assert show(client, show="of nobody's making") == ["ed", "di", "cy", "bo", "ada"]
    assert show(client, show="doubt") == []


def test_what_waits_for_people_is_found(client: Client, ask: Ask):
    asked = ask("Ada")
    start("bo")

    page = text(client.get(RUNS, {"show": "people"}))

    assert str(asked.run_id) in page
    assert "bonus-bo" not in page


def test_what_is_in_doubt_is_found(client: Client):
    start("ada")
    run = start("bo")
    doubtful(run)

    assert show(client, show="doubt") == ["bo"]
    assert show(client, provider="bank") == ["bo"]
    assert show(client, provider="another") == []


def doubtful(run: WorkflowRun) -> SideEffect:
    return SideEffect.objects.create(
        run=run,
        step=StepRun.objects.filter(run=run)[0],
        step_name="pay",
        operation="bonus.give",
        key=str(run.pk),
        effect="bonus.give",
        provider="bank",
        request_digest="0" * 64,
        state="UNKNOWN",
        in_doubt_since=clock.now(),
        created_at=clock.now(),
    )


@pytest.mark.parametrize(
    "query",
    [
        {"state": "FAILED"},
        {"owner": "asker"},
        {"subject": "subject"},
        {"q": "subject"},
        {"q": "bonus-a"},
        {"q": "id"},
        {"error": "ReadTimeout"},
        {"error": "requests.exceptions.ReadTimeout"},
        {"age": "day"},
        {"workflow": "bonus", "age": "week"},
    ],
)
def test_fields_and_a_search_narrow_the_list(query: dict[str, str], client: Client, person: People, asker: User):
    ada, bo = start("ada", asker, subject=asker), start("bo", person("boss"))
    put(ada, state="FAILED", ended_at=clock.now(), error_class="requests.exceptions.ReadTimeout")
    put(bo, created_at=clock.now() - timedelta(days=8))
    terms = {"subject": str(asker.pk), "id": str(ada.pk)}

    assert show(client, **{name: terms.get(value, value) for name, value in query.items()}) == ["ada"]
    assert show(client, age="over-week") == ["bo"]
    assert show(client, sort="first") == ["bo", "ada"]


def test_runs_of_another_tenant_are_not_there(client: Client):
    put(start("ada"), tenant="north")
    start("bo")

    assert show(client) == ["bo"]
    assert show(client, tenant="north") == []
    assert "Nothing was found." in text(client.get(RUNS, {"q": "bonus-ada"}))


def test_pages_go_by_place_and_ties_keep_their_order(client: Client):
    runs = [start(f"n{number}") for number in range(window.PAGE * 2 + 3)]
    WorkflowRun.objects.update(created_at=runs[0].created_at)
    expected = [str(run.pk) for run in reversed(runs)]

    seen, address = [], RUNS
    while address:
        page = text(client.get(address))
        seen += [one for one in expected if f'value="{one}"' in page]
        following = re.search(r'<a href="([^"]+)" rel="next"', page)
        address = RUNS + unescape(following[1]) if following else ""

    assert seen == expected


@pytest.mark.parametrize(
    "query",
    [
        *({"show": name} for name in ("all", "live", "stuck", "people", "failing")),
        {"owner": "asker", "error": "requests.exceptions.ReadTimeout", "q": "subject"},
    ],
)
def test_queries_do_not_grow_with_the_runs(
    query: dict[str, str], client: Client, asker: User, django_assert_max_num_queries: Any
):
    run = start("ada", asker, subject=asker)
    put(run, business_key="", state="PARKED", parked_reason="error in our code", alert="look at it")
    put(run, error_class="requests.exceptions.ReadTimeout")
    given = {name: str(asker.pk) if value == "subject" else value for name, value in query.items()}
    with django_assert_max_num_queries(12) as few:
        assert len(client.get(RUNS, given).context["rows"]) == 1

    copy_run(run.pk, 200)

    with django_assert_max_num_queries(len(few)):
        assert len(client.get(RUNS, given).context["rows"]) == window.PAGE


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, "There are no runs that you may see."),
        ({"show": "stuck"}, "Nothing is stuck."),
        ({"q": "nothing"}, "Nothing was found."),
        ({"after": f"1.{0:032x}"}, "There is nothing on this page any more."),
    ],
)
def test_an_empty_list_says_what_is_empty(query: dict[str, str], words: str, client: Client):
    assert words in text(client.get(RUNS, query))


def test_hostile_words_are_words(client: Client, asker: User):
    run = start("ada", asker)
    put(run, business_key=HOSTILE[:200], alert=HOSTILE, subject_id=HOSTILE[:64], owner_name=HOSTILE[:150])

    assert is_inert(text(client.get(RUNS, {"q": HOSTILE[:20], "owner": HOSTILE[:20], "after": HOSTILE})))
    assert is_inert(text(client.get(RUNS)))


def test_nul_in_a_field_finds_nothing_and_breaks_nothing(client: Client):
    assert client.get(RUNS, {"owner": "\0"}).status_code == 400
    assert client.get(RUNS, {"q": "\0"}).status_code == 200
