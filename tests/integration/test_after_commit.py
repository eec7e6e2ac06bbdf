"""What is done after a commit: it may fail, and neither its caller nor what is to be done besides notices."""

import logging
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from durableflows import api, dispatch
from durableflows.core.states import RunState
from durableflows.models import WorkflowRun
from durableflows.testing import World
from durableflows.transactions import after_commit
from tests.support.flows import Provider, pay_workflow

pytestmark = pytest.mark.django_db(transaction=True)


def fail() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("is_open", [True, False], ids=["in a transaction", "without one"])
def test_what_fails_after_the_commit_is_logged_and_keeps_nothing_from_being_done(
    is_open: bool, caplog: pytest.LogCaptureFixture
):
    done: list[str] = []

    def ask_for_all() -> None:
        after_commit(fail, "the first thing")
        after_commit(lambda: done.append("second"), "the second thing")

    if is_open:
        with transaction.atomic():
            ask_for_all()
            assert done == []
    else:
        ask_for_all()

    assert done == ["second"]
    assert "the first thing failed after the commit" in caplog.text


def test_what_was_asked_for_before_a_rollback_is_not_done():
    done: list[str] = []
    with transaction.atomic():
        after_commit(lambda: done.append("x"), "it")
        transaction.set_rollback(True)

    assert done == []


def test_a_start_whose_message_cannot_be_sent_for_whatever_reason_has_started(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """P1: the run is committed; its caller must not be told otherwise, and a sweep sends the step."""

    def break_down(*arguments: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(dispatch, "_send", break_down)
    with caplog.at_level(logging.ERROR):
        run = api.start(pay_workflow(Provider()), {"amount": 5})
    monkeypatch.undo()
    User.objects.exists()  # the connection is as usable as before
    world.clock.advance(minutes=1)
    world.run_until_idle()

    assert f"the sending of step {run.steps.get(name='assess').pk} failed after the commit" in caplog.text
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED
