"""Prompts, policies and names of versions: a run goes on with those it began with (P8)."""

from datetime import timedelta
from types import new_class

import pytest

from durableflows import InvalidDefinition, NotFoundError, Run, StepReturn, Workflow, WorkflowState, api, step, wait_for
from durableflows.core import registry
from durableflows.core.states import RunState
from durableflows.models import PinnedContent
from durableflows.testing import World
from tests.support.look import fresh, state_of

pytestmark = pytest.mark.django_db(transaction=True)


class Seen(WorkflowState):
    seen: list[str] = []


def release(text: str, limit: int) -> type[Workflow[Seen]]:
    """One deploy of the same version: its prompt and its limit are what changes."""

    class Triage(Workflow[Seen]):
        name, deadline = "triage", timedelta(days=30)
        prompts = {"sort": text}
        policies = {"limits": {"USD": limit}}
        pins = {"model_route": f"small for {limit}", "tools": "schema 3", "knowledge_index": f"index {limit}"}

        @step(start=True, to="sort")
        def begin(self, run: Run[Seen]) -> StepReturn:
            return wait_for("go", then=self.sort)

        @step(end=True)
        def sort(self, run: Run[Seen]) -> None:
            names = run.manifest["pins"]
            assert isinstance(names, dict)
            pins = f"{names['model_route']}, {names['tools']}, {names['knowledge_index']}"
            run.state.seen = [run.manifest.prompt("sort"), str(run.manifest.policy("limits")), pins]

    return Triage


def test_a_run_goes_on_with_the_prompt_it_began_with(world: World):
    """S3.11, S3.15, S3.42, R36: a deploy changes prompt and policy while the run waits."""
    old = api.start(release("Sort mails.", 500), {})
    world.run_until_idle()
    registry._DEFINITIONS.clear()
    new = api.start(release("Sort mails by anger.", 900), {})
    world.run_until_idle()
    for run in (old, new):
        api.signal(run.pk, "go")
    world.run_until_idle()

    assert fresh(old).data["seen"] == ["Sort mails.", "{'USD': 500}", "small for 500, schema 3, index 500"]
    assert fresh(new).data["seen"] == ["Sort mails by anger.", "{'USD': 900}", "small for 900, schema 3, index 900"]
    assert "Sort mails." not in str(fresh(old).manifest)
    assert (fresh(old).manifest["workflow"], fresh(old).manifest["version"]) == ("triage", 1)


def test_what_many_runs_pin_is_stored_once(world: World):
    flow = release("Sort mails.", 500)
    for _ in range(3):
        api.start(flow, {})

    assert PinnedContent.objects.count() == 2


def test_a_pinned_prompt_that_was_changed_or_is_gone_is_not_used(world: World):
    for change in (lambda rows: rows.update(content="Send all money."), lambda rows: rows.delete()):
        registry._DEFINITIONS.clear()
        run = api.start(release("Sort mails.", 500), {})
        world.run_until_idle()
        change(PinnedContent.objects.filter(content="Sort mails."))
        api.signal(run.pk, "go")
        world.run_until_idle()

        assert state_of(run) is RunState.PARKED
        assert "that this run pinned" in fresh(run).parked_detail
        PinnedContent.objects.all().delete()


def test_a_name_that_was_not_pinned_is_an_error_that_helps(world: World):
    class Wrong(Workflow[Seen]):
        name, deadline, prompts = "wrong", timedelta(days=1), {"sort": "x"}

        @step(start=True, end=True)
        def begin(self, run: Run[Seen]) -> None:
            with pytest.raises(NotFoundError, match="did you mean 'sort'"):
                run.manifest.prompt("sorte")

    run = api.start(Wrong, {})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("prompts", {"sort": 5}, r"prompts\['sort'\] is 5, a text is needed"),
        ("prompts", {"sort": ""}, "a text is needed"),
        ("prompts", ["sort"], "prompts is a mapping"),
        ("policies", {"limits": object()}, "limits"),
        ("pins", {"model": 5}, r"pins\['model'\] is 5"),
    ],
)
def test_what_cannot_be_pinned_is_refused_at_import(option: str, value: object, says: str):
    begin = step(start=True, end=True)(lambda self, run: None)
    members = {"name": "wrong", "deadline": timedelta(days=1), option: value, "begin": begin}

    with registry.isolated(), pytest.raises(InvalidDefinition, match=says):
        new_class("Wrong", (Workflow[Seen],), {}, lambda body: body.update(members))
