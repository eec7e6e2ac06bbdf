"""System checks of what is declared well and will hurt: each fires where it should, and is silent elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import stripe
from celery import current_app
from django.db import connection
from pydantic import BaseModel

from durableflows import CannotTell, EffectCall, Retry, Run, Workflow, WorkflowState, effect, step, tasks
from durableflows.checks_celery import check_celery, check_connections, check_step_tasks
from durableflows.checks_effects import check_clients, check_effects, check_providers
from durableflows.core import registry
from durableflows.core.definition import EffectDefinition


class Receipt(BaseModel):
    """What the provider answers."""

    id: str


class Nothing(WorkflowState):
    """A run that remembers nothing."""


def find(call: EffectCall) -> CannotTell:
    return CannotTell("nobody knows")


def used(*, key_window: timedelta | None = None, has_lookup: bool = False, **more: Any) -> EffectDefinition[Receipt]:
    @effect(
        name="bank.pay",
        provider="bank",
        receipt=Receipt,
        key_window=key_window,
        lookup=find if has_lookup else None,
        settle_seconds=30,
        **more,
    )
    def pay(call: EffectCall) -> Receipt:
        return Receipt(id="p")

    return pay


@contextmanager
def declared(
    given: EffectDefinition[Receipt], retry: Retry | None = None, *, versions: int = 1, named: str = "checked"
) -> Iterator[None]:
    """A workflow of that one effect, in as many versions."""
    with registry.isolated():
        for number in range(1, versions + 1):

            class Checked(Workflow[Nothing]):
                name, version, deadline = named, number, timedelta(days=14)

                @step(start=True, end=True, effects=(given,), retry=retry or Retry())
                def pay(self, run: Run[Nothing]) -> None:
                    run.effect(given)

        yield


def effects_found() -> list[tuple[str | None, str]]:
    return [(one.id, one.msg) for one in check_effects(None)]


HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_an_effect_that_nobody_can_be_asked_about_is_named_once():
    with declared(used(), versions=2):
        found = effects_found()

    assert [one for one, _ in found] == ["durableflows.W007"]
    assert "bank.pay" in found[0][1]


@pytest.mark.parametrize(
    "given",
    [
        used(key_window=DAY),
        used(has_lookup=True),
        used(key_window=DAY, has_lookup=True),
        used(event=lambda body: None),
        used(left_to_person=True),
    ],
    ids=["key", "lookup", "both", "the provider tells", "left to a person on purpose"],
)
def test_an_effect_with_an_answer_to_that_is_fine(given: EffectDefinition[Receipt]):
    with declared(given):
        assert effects_found() == []


def pending(receipt: Receipt) -> bool:
    return receipt.id == "pending"


@pytest.mark.parametrize(
    ("given", "is_named"),
    [
        (used(key_window=DAY, accepted=pending), True),
        (used(key_window=DAY, accepted=pending, has_lookup=True), False),
        (used(key_window=DAY, accepted=pending, event=lambda body: None), True),
        (used(key_window=DAY, accepted=pending, event=lambda body: None, accepted_within=DAY), False),
    ],
    ids=["nobody says", "lookup", "told, and nobody waits for it", "the provider tells in time"],
)
def test_an_effect_that_is_accepted_and_of_which_nobody_says_when_it_is_done_is_named(
    given: EffectDefinition[Receipt], is_named: bool
):
    with declared(given):
        assert [one for one, _ in effects_found()] == ["durableflows.W015"] * is_named


def test_limits_of_a_provider_that_no_effect_has_are_named(settings: Any):
    settings.DURABLEFLOWS = {
        **settings.DURABLEFLOWS,
        "PROVIDERS": {"bank": {}, "banks": {}},
    }
    with declared(used(key_window=DAY)):
        (found,) = check_providers(None)
    with registry.isolated():
        assert check_providers(None) == []

    assert (found.id, "'banks'" in found.msg) == ("durableflows.W014", True)


@pytest.mark.parametrize(
    ("retry", "is_named"),
    [
        (Retry(), False),
        (Retry(attempts=100, cap_seconds=20), False),
        (Retry(attempts=100, cap_seconds=60), True),
        (Retry(attempts=3, base_seconds=2400, cap_seconds=3600), True),
        (Retry(attempts=10**9), True),
        (Retry(attempts=100, cap_seconds=60, within=timedelta(minutes=50)), False),
    ],
)
@pytest.mark.parametrize("has_lookup", [False, True])
def test_retries_that_outlast_the_key_are_named(retry: Retry, is_named: bool, has_lookup: bool):
    with declared(used(key_window=HOUR, has_lookup=has_lookup), retry):
        found = effects_found()

    assert [one for one, _ in found] == ["durableflows.W008"] * is_named
    assert all("checked.pay" in text and "bank.pay" in text for _, text in found)
    assert all(("looked up" if has_lookup else "left to a person") in text for _, text in found)


# Celery


def celery_found() -> list[str | None]:
    return [one.id for one in (*check_celery(None), *check_step_tasks(None))]


@pytest.fixture
def conf(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Celery's settings as the demo has them: nothing is to be said."""
    for name, value in (("worker_send_task_events", True), ("worker_pool", "prefork"), ("task_acks_late", False)):
        monkeypatch.setitem(current_app.conf, name, value)
    return monkeypatch


def test_a_celery_app_that_leaves_retries_and_acknowledgement_alone_is_fine(conf: pytest.MonkeyPatch):
    assert celery_found() == []


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("task_acks_late", True, "durableflows.W002"),
        ("task_always_eager", True, "durableflows.W003"),
        ("worker_pool", "threads", "durableflows.W004"),
        ("worker_send_task_events", False, "durableflows.W012"),
    ],
)
def test_a_setting_of_celery_that_will_hurt_is_named(conf: pytest.MonkeyPatch, name: str, value: object, wanted: str):
    conf.setitem(current_app.conf, name, value)

    assert celery_found() == [wanted]


@pytest.mark.parametrize(
    ("age", "reuse", "wanted"),
    [(0, None, []), (60, None, ["durableflows.W013"]), (None, None, ["durableflows.W013"]), (60, 1_000_000, [])],
)
def test_connections_that_are_to_be_kept_and_are_closed_around_each_task_are_named(
    conf: pytest.MonkeyPatch, age: int | None, reuse: int | None, wanted: list[str]
):
    conf.setitem(connection.settings_dict, "CONN_MAX_AGE", age)
    conf.setitem(current_app.conf, "CELERY_DB_REUSE_MAX", reuse)

    assert [one.id for one in check_connections(None)] == wanted


def test_an_app_that_this_process_did_not_set_up_is_not_blamed(conf: pytest.MonkeyPatch):
    """Celery makes one up with its own defaults; what the workers have is not known here."""
    conf.setitem(current_app.conf, "worker_send_task_events", False)
    conf.setattr(current_app, "main", "default")

    assert celery_found() == []


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [("acks_late", True, "durableflows.W009"), ("autoretry_for", (ConnectionError,), "durableflows.W010")],
)
def test_a_step_s_task_that_celery_would_do_again_is_named(
    conf: pytest.MonkeyPatch, name: str, value: object, wanted: str
):
    """S3.12: one layer retries. By task_annotations, or a task of the project's own under that name."""
    named = f"checked_{name}"  # Celery keeps tasks for as long as the process lives
    with declared(used(has_lookup=True), named=named):
        tasks.register()
        task = current_app.tasks[f"{named}.pay"]
        assert celery_found() == []

        conf.setattr(task, name, value, raising=False)

        assert celery_found() == [wanted]
        assert f"{named}.pay" in check_step_tasks(None)[0].msg


# Libraries of providers


def test_retries_of_stripe_s_library_are_named(monkeypatch: pytest.MonkeyPatch):
    """S3.12."""
    monkeypatch.setattr(stripe, "max_network_retries", 2)

    assert [one.id for one in check_clients(None)] == ["durableflows.W011"]


def test_without_them_it_is_silent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stripe, "max_network_retries", 0)
    assert check_clients(None) == []

    monkeypatch.delitem(sys.modules, "stripe")
    assert check_clients(None) == []
