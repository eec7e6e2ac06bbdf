"""DURABLEFLOWS["CLASSIFIERS"]: a project says what its own exceptions mean, and a mistake in that loses nothing."""

import logging

import httpx
import pytest
from django.conf import LazySettings

from durableflows import AlreadyDone, NeverSent, Permanent, Transient, UnknownOutcome, api, classifiers
from durableflows.checks import check_settings
from durableflows.core.definition import StepDefinition, StepKind
from durableflows.core.states import EffectState, ParkedReason, RunState
from durableflows.models import EffectSend, SideEffect, WorkflowRun
from durableflows.testing import World
from tests.support.flows import Provider, act_then_raise, pay_workflow, raise_without_acting

pytestmark = pytest.mark.django_db(transaction=True)

HERE = __name__
STEP = StepDefinition(name="pay", kind=StepKind.TASK)


class Busy(Exception):
    """A provider's library of the project's own."""


def busy_is_transient(error: Exception) -> Transient | None:
    return Transient(str(error), retry_after_seconds=90) if isinstance(error, Busy) else None


def all_is_doubt(error: Exception) -> UnknownOutcome:
    return UnknownOutcome("we make two requests")


def fails(error: Exception) -> None:
    raise RuntimeError("a mistake in the classifier")


def says_a_class(error: Exception) -> type[Exception]:
    return Permanent


def ends_the_process(error: Exception) -> None:
    raise SystemExit(3)


def takes_nothing() -> None:
    """Ill-typed: it is called with the error."""


def use(settings: LazySettings, *names: str) -> None:
    settings.DURABLEFLOWS = {**settings.DURABLEFLOWS, "CLASSIFIERS": [f"{HERE}.{name}" for name in names]}


def test_a_project_s_classifier_is_asked_for_what_an_effect_raises(world: World, settings: LazySettings):
    """R11, R13: its verdict is recorded, and what it says of patience is kept."""
    use(settings, "busy_is_transient")
    provider = Provider(faults=[raise_without_acting(Busy("full"))])

    run = api.start(pay_workflow(provider), {"amount": 5})
    world.run_until_idle()
    began = world.clock.now()
    row = SideEffect.objects.get(run=run)
    assert row.state == EffectState.PLANNED
    world.run_through()

    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED
    assert (world.clock.now() - began).total_seconds() >= 90


def test_they_are_asked_in_order_and_before_the_engine_s_own_table(settings: LazySettings):
    use(settings, "busy_is_transient", "all_is_doubt")

    assert type(classifiers.inside(Busy("full"))) is Transient
    assert type(classifiers.inside(httpx.ConnectError("refused"))) is UnknownOutcome
    settings.DURABLEFLOWS = {**settings.DURABLEFLOWS, "CLASSIFIERS": []}
    assert type(classifiers.inside(httpx.ConnectError("refused"))) is NeverSent


def test_our_own_exceptions_are_not_put_to_them(settings: LazySettings):
    use(settings, "fails")
    for error in (Permanent("no"), AlreadyDone("yes"), SystemExit(1)):
        assert classifiers.inside(error) is error


@pytest.mark.parametrize("name", ["fails", "says_a_class", "ends_the_process", "takes_nothing", "is_not_there"])
def test_a_classifier_that_fails_does_not_lose_the_send(
    world: World, settings: LazySettings, caplog: pytest.LogCaptureFixture, name: str
):
    """P5: the provider acted, and only the receipt is lost; it is in doubt, logged, and asked again under its key."""
    use(settings, name)
    provider = Provider(faults=[act_then_raise(httpx.ConnectError("refused"))])

    run = api.start(pay_workflow(provider), {"amount": 5})
    with caplog.at_level(logging.ERROR, "durableflows.classifiers"):
        try:
            world.run_until_idle()
        except SystemExit:
            assert name == "ends_the_process"
        else:
            assert "ConnectError" in caplog.text

    assert SideEffect.objects.get(run=run).state == EffectState.UNKNOWN
    assert EffectSend.objects.get(effect__run=run).outcome == "unknown"
    if name != "ends_the_process":
        world.run_through()
        assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED
    assert len(provider.acts) == 1


def test_outside_effects_they_are_asked_too_and_the_step_s_own_map_comes_first(settings: LazySettings):
    use(settings, "busy_is_transient")
    mapped = StepDefinition(name="pay", kind=StepKind.TASK, permanent=(Busy,))

    assert type(classifiers.outside(Busy("full"), STEP)) is Transient
    assert type(classifiers.outside(Busy("full"), mapped)) is Busy


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [
        (httpx.ConnectError("refused"), True),
        (httpx.ReadTimeout("slow", request=httpx.Request("GET", "https://x.example")), True),
        (httpx.ReadTimeout("slow", request=httpx.Request("POST", "https://x.example")), False),
    ],
    ids=["never sent", "lost answer to a GET", "lost answer to a POST"],
)
def test_in_a_step_s_body_what_surely_did_nothing_is_tried_again(world: World, error: Exception, is_retried: bool):
    """S3.6: and an answer that was lost parks the run, for nothing can be looked up by."""
    errors = [error]

    def body(_: object) -> None:
        if errors:
            raise errors.pop()

    run = api.start(pay_workflow(Provider(), body=body), {"amount": 5})
    world.run_through()

    row = WorkflowRun.objects.get(pk=run.pk)
    assert (row.state == RunState.SUCCEEDED) is is_retried
    assert (row.parked_reason == ParkedReason.OUR_CODE) is not is_retried


# Checked before it hurts


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((), []),
        (("busy_is_transient", "all_is_doubt"), []),
        (("is_not_there",), ["durableflows.E008"]),
        (("HERE",), ["durableflows.E008"]),
        (("takes_nothing",), ["durableflows.E008"]),
        (("busy_is_transient", "is_not_there", "HERE"), ["durableflows.E008", "durableflows.E008"]),
    ],
)
def test_a_classifier_that_cannot_be_called_is_named(settings: LazySettings, given: tuple[str, ...], wanted: list[str]):
    use(settings, *given)

    assert [one.id for one in check_settings(None)] == wanted


@pytest.mark.parametrize("given", ["a.path", [7], [""], {"a": "b"}, None])
def test_an_ill_typed_list_is_named(settings: LazySettings, given: object):
    settings.DURABLEFLOWS = {**settings.DURABLEFLOWS, "CLASSIFIERS": given}

    found = check_settings(None)

    assert [one.id for one in found] == ["durableflows.E001"]
    assert "CLASSIFIERS" in found[0].msg
