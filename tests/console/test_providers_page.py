"""Providers in the console: how each stands, and stopping one by hand: with the right, a reason and a fresh page."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings

from durableflows import api, clock
from durableflows.core.breaker import mark
from durableflows.errors import TooLate
from durableflows.models import Breaker, BreakerChange, StepRun
from durableflows.provider_state import read
from durableflows.services import providers as service
from tests.console.test_dashboard import put, start
from tests.console.test_run_list import doubtful
from tests.console.test_run_page import words_of
from tests.support.pages import HOSTILE, Browse, People, is_inert, text

pytestmark = pytest.mark.django_db

LIST = "/durableflows/console/providers/"
BANK = "/durableflows/console/provider/bank/"
PAUSE, RESUME = "/durableflows/console/do/pause/bank/", "/durableflows/console/do/resume/bank/"


@pytest.fixture
def client(operator: User, browse: Browse) -> Client:
    return browse(operator)


def hold(name: str, **options: Any) -> StepRun:
    """A step that waits for the bank."""
    step = start(name, **options)
    put(step, held_by="bank", held_for="breaker", held_since=clock.now() - timedelta(minutes=5), sent_at=None)
    return step


def stop(name: str, state: str, **values: Any) -> None:
    Breaker.objects.create(provider=name, state=state, changed_at=clock.now(), **values)


def order(client: Client, page: str, **given: str) -> Any:
    """Look at the page, and send its form."""
    shown = client.get(page).context["shown"]
    return client.post(page, {"shown": shown, "reason": "they announced maintenance", **given})


def changes() -> list[tuple[str, str, str]]:
    return list(BreakerChange.objects.order_by("pk").values_list("state", "actor_name", "reason"))


def test_each_provider_is_said_to_be_in_use_left_alone_tried_or_paused_with_what_comes_next(client: Client):
    soon = clock.now() + timedelta(minutes=1)
    stop("mail", "open", opened_at=clock.now(), open_until=soon, failures=5, reason="after 5 failures in a row")
    stop("maps", "half-open", probe_token="0" * 32, probe_until=soon)
    stop("tickets", "paused", changed_by="ann", reason=HOSTILE)
    hold("waits"), doubtful(start("doubt").run)

    with override_settings(DURABLEFLOWS={"PROVIDERS": {"bank": {"per_second": 10, "at_once": 4}}}):
        page = text(client.get(LIST))

    words = words_of(page)
    for said in (
        "bank State in use",
        "Requests leave for it.",
        "1 step of 1 run, the longest for 5",
        "In doubt 1 effect",
        "10 a second; 4 at a time; left alone for 30 s after 5 failures in a row",
        "Why after 5 failures in a row",
        "one request tries whether it is back",
        "it is heard of",
        "Why by ann: ",
        "Nothing leaves for it until somebody resumes it.",
    ):
        assert said in words
    assert words.index("mail State") < words.index("bank State"), "those that take nothing stand first"
    assert is_inert(page)


def test_a_provider_is_paused_and_resumed_with_a_preview_a_reason_and_a_row_for_each(client: Client):
    hold("one"), hold("two")
    preview = words_of(text(client.get(PAUSE)))
    assert "2 steps of 2 runs" in preview
    assert "requests, and lookups of what is in doubt" in preview

    paused = order(client, PAUSE)

    assert paused["Location"] == f"{BANK}?did=pause"
    assert "nothing more is sent to it" in text(client.get(paused["Location"]))
    assert "It would change nothing" in text(client.get(PAUSE))
    assert "is it over? (1) by operator: they announced maintenance" in words_of(text(client.get(RESUME)))
    resumed = order(client, RESUME, reason="they are back")
    assert resumed.status_code == 302
    said = words_of(text(client.get(BANK)))
    assert "in use operator they are back" in said
    assert "paused operator they announced maintenance" in said
    expected = [("paused", "operator", "they announced maintenance"), ("closed", "operator", "they are back")]
    assert changes() == expected


def test_what_was_stopped_by_others_meanwhile_is_shown_first_and_nothing_is_done(client: Client, person: People):
    stop("bank", "open", opened_at=clock.now(), open_until=clock.now(), reason="after 5 failures in a row")
    shown = client.get(RESUME).context["shown"]
    api.pause_provider("bank", by=person("ann", "durableflows.operate_run"), reason="fraud")
    before = changes()

    response = client.post(RESUME, {"shown": shown, "reason": "it answers again"})

    assert response.status_code == 409
    assert "It is paused by now, by ann: fraud." in text(response)
    with pytest.raises(TooLate, match="paused by now"):
        service.resume("bank", by=None, reason="it answers again", shown=shown)
    assert changes() == before
    assert order(client, RESUME).status_code == 302


def test_a_request_that_tries_makes_no_page_stale(client: Client):
    stop("bank", "open", opened_at=clock.now(), open_until=clock.now())
    shown = mark(read("bank"))
    Breaker.objects.update(state="half-open", probe_token="0" * 32, probe_until=clock.now(), changed_at=clock.now())

    assert client.post(RESUME, {"shown": shown, "reason": "it answers again"}).status_code == 302


@pytest.mark.parametrize("reason", ["", " \u200b "])
def test_nothing_is_done_without_a_reason(client: Client, reason: str):
    response = order(client, PAUSE, reason=reason)

    assert response.status_code == 400
    assert "the reason stays on the record" in text(response)
    assert changes() == []


def test_who_may_only_look_or_acts_in_some_tenants_stops_nothing(person: People, browse: Browse):
    hold("ours", tenant="acme"), hold("theirs", tenant="other")
    viewer = browse(person("all-viewer", "durableflows.view_workflowrun"))
    ann = browse(person("acme-ann", "durableflows.operate_run"))
    nobody = browse(person("all-nobody"))

    with override_settings(DURABLEFLOWS={"TENANTS_OF": "tests.support.tenants.of"}):
        for client in (viewer, ann, nobody):
            assert client.get(PAUSE).status_code == 403
            assert client.post(PAUSE, {"shown": "in use", "reason": "x"}).status_code == 403
        assert "2 steps of 2 runs" in text(viewer.get(BANK))
        assert "the permission durableflows.operate_run is needed" in text(viewer.get(BANK))
        assert "1 step of 1 run" in text(ann.get(BANK))
        assert "it serves all tenants" in text(ann.get(BANK))
        assert nobody.get(LIST).status_code == nobody.get(BANK).status_code == 403
    assert changes() == []


@pytest.mark.parametrize(
    "path", ["provider/none/", "do/pause/none/", "do/stop/bank/", "provider/%00/", "provider/a/b/", "do/pause/%0A/"]
)
def test_what_is_no_provider_and_no_verb_is_not_there(client: Client, path: str):
    assert client.get(f"/durableflows/console/{path}").status_code == 404
