"""`manage.py durableflows provider`: how providers stand, and to pause and resume one."""

import json
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from durableflows.models import BreakerChange
from durableflows.testing import World
from tests.support.flows import Provider
from tests.support.payers import NAME, breaker, limits, operator_named, start_many

pytestmark = pytest.mark.django_db(transaction=True)


def run(*words: str) -> str:
    out = StringIO()
    call_command("durableflows", "provider", *words, stdout=out)
    return out.getvalue()


def run_json(*words: str) -> Any:
    return json.loads(run(*words, "--json"))


def test_a_provider_is_shown_paused_and_resumed(world: World):
    start_many(Provider(), 2)
    run(NAME, "pause", "--reason", "maintenance", "--by", operator())
    world.run_until_idle()

    shown = run_json(NAME)

    assert (shown["state"], shown["by"], shown["reason"], shown["waiting"]) == ("paused", "ola", "maintenance", 2)
    assert "maintenance" in run(NAME)
    assert NAME in run()
    assert run_json(NAME, "resume", "--reason", "over")["state"] == "closed"
    assert [change["state"] for change in run_json(NAME)["changes"]] == ["closed", "paused"]


def test_limits_are_shown(world: World):
    with limits(per_second=5):
        assert run_json(NAME)["per_second"] == 5


@pytest.mark.parametrize(
    "words",
    [
        (NAME, "pause"),
        ("", "pause", "--reason", "x"),
        ("tset", "pause", "--reason", "x"),
        ("tset",),
        (NAME, "pause", "--reason", "x", "--by", "nobody"),
    ],
)
def test_what_is_asked_wrongly_is_refused(world: World, words: tuple[str, ...]):
    start_many(Provider(), 1)

    with pytest.raises(CommandError):
        run(*words)
    assert not BreakerChange.objects.exists()


def test_who_has_no_right_may_not(world: World):
    start_many(Provider(), 1)
    User.objects.create(username="sam")

    with pytest.raises(CommandError, match="not_allowed"):
        run(NAME, "pause", "--reason", "x", "--by", "sam")


def operator() -> str:
    return str(operator_named("ola").username)


def test_a_second_pause_changes_nothing(world: World):
    start_many(Provider(), 1)
    run(NAME, "pause", "--reason", "first")
    run(NAME, "pause", "--reason", "second")

    assert breaker().reason.startswith("first")
    assert BreakerChange.objects.count() == 1
