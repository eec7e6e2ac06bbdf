"""A checkpoint that this project did not write is not resumed from, whatever was put there (P13)."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db.models import JSONField, Value

from durableflows import Permanent, Run, StepReturn, Transient, Workflow, api, each, integrity, step, wait_for
from durableflows.doctor import verify
from durableflows.models import Signal, StepAttempt, StepRun, WorkflowRun
from durableflows.testing import World, run_step
from tests.support.flows import Provider, pay_workflow, raise_without_acting
from tests.support.waits import Way, waiting, waiting_workflow


def sealed() -> WorkflowRun:
    run = WorkflowRun(workflow="pay", version=1)
    integrity.seal(run, {"amount": 5}, 0)
    return run


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "data",
    [
        {"amount": 6},
        {"amount": float("nan")},
        {"amount": float("inf")},
        {"amount": "\ud800"},
        {"\udfff": 5},
        nested(5000),
    ],
    ids=["changed", "nan", "infinity", "lone surrogate", "lone surrogate as key", "too deep"],
)
def test_a_state_that_is_not_ours_is_not_sealed_and_raises_nothing(data: dict[str, Any]):
    run = sealed()
    assert integrity.is_sealed(run)

    run.data = data

    assert not integrity.is_sealed(run)


@pytest.mark.parametrize("digest", ["", "é" * 64, "\ud800"])
def test_a_digest_that_is_none_is_not_ours(digest: str):
    run = sealed()
    run.data_digest = digest

    assert not integrity.is_sealed(run)


@pytest.mark.django_db(transaction=True)
def test_an_older_checkpoint_that_is_put_back_is_not_resumed_from(world: World):
    """P13: its seal is valid, and the history says that the run was further. The history goes on where it ended."""
    fields = ("data", "data_digest", "checkpoint_sequence", "event_sequence", "event_digest")
    provider = Provider(faults=[raise_without_acting(Transient("503"))])
    run = api.start(pay_workflow(provider, body=lambda run: setattr(run.state, "receipt_id", "x")), {"amount": 5})
    older = WorkflowRun.objects.values(*fields).get(pk=run.pk)
    world.run_until_idle()
    assert WorkflowRun.objects.get(pk=run.pk).event_sequence > older["event_sequence"]

    WorkflowRun.objects.filter(pk=run.pk).update(**older)
    world.run_through()

    parked = WorkflowRun.objects.get(pk=run.pk)
    assert (parked.state, parked.parked_reason) == ("PARKED", "integrity")
    assert "older checkpoint" in parked.parked_detail
    assert provider.acts == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("put", ["changed", "older"])
def test_a_state_that_was_changed_while_a_body_ran_is_not_sealed_by_its_settlement(world: World, put: str):
    """P13: what the body left is merged into what is stored, and that must be ours."""
    fields = ("data", "data_digest", "checkpoint_sequence")
    older: dict[str, Any] = {}

    class Counting(Workflow[Way]):
        name, deadline = "counting", timedelta(days=1)

        @step(start=True, to="second")
        def first(self, run: Run[Way]) -> None:
            older.update(WorkflowRun.objects.values(*fields).get(pk=run.id))
            run.state.way = "signal"

        @step(end=True)
        def second(self, run: Run[Way]) -> None:
            given = older if put == "older" else {"data": {"way": "child"}}
            WorkflowRun.objects.filter(pk=run.id).update(**given)

    run = api.start(Counting, {})
    world.run_until_idle()

    parked = WorkflowRun.objects.get(pk=run.pk)
    assert (parked.state, parked.parked_reason) == ("PARKED", "integrity")
    assert [row.outcome for row in StepAttempt.objects.filter(step__run=run).order_by("id")] == [
        "done",
        "changed from outside",
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("changed", [{"item": "eve"}, {}, {"item": "a", "more": 1}])
def test_an_item_that_was_changed_from_outside_is_not_worked_on(world: World, changed: dict[str, Any]):
    run_id = waiting(world, "turn")
    StepRun.objects.filter(run=run_id, item_key="a").update(input=changed)

    world.clock.advance(hours=2)
    world.run_until_idle()

    run = WorkflowRun.objects.get(pk=run_id)
    assert (run.parked_reason, "what slow is given" in run.parked_detail) == ("integrity", True)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", ["turn", "signal in time", "child", "signal"])
def test_what_was_taken_out_with_its_seal_is_missed(world: World, way: str):
    """Nothing is something given too: no step goes on without its item, its signal, or where its time-out leads."""
    run_id = waiting(world, way)
    if way == "signal":
        api.signal(run_id, "begin")
    given = StepRun.objects.filter(run=run_id, ended_at=None).exclude(input={})

    assert given.update(input={}, input_seal="")
    for child in WorkflowRun.objects.filter(parent_id=run_id):
        api.signal(child.pk, "begin")
    world.clock.advance(days=3)
    world.run_until_idle()

    assert "is given" in parked_over(run_id)


@pytest.mark.django_db(transaction=True)
def test_a_signal_that_was_changed_from_outside_is_not_believed(world: World):
    seen: list[object] = []

    class Listening(Workflow[Way]):
        name, deadline = "listening", timedelta(days=1)

        @step(start=True, to="heard")
        def listen(self, run: Run[Way]) -> StepReturn:
            return wait_for("paid", then=self.heard)

        @step(end=True)
        def heard(self, run: Run[Way]) -> None:
            assert run.signal is not None
            seen.append(run.signal.payload)

    run = api.start(Listening, {})
    world.run_until_idle()
    api.signal(run.pk, "paid", {"amount": 5})
    Signal.objects.filter(run=run).update(payload={"amount": 500})
    world.run_until_idle()

    parked = WorkflowRun.objects.get(pk=run.pk)
    assert seen == []
    assert parked.parked_reason == "integrity"
    assert "signal paid does not match its digest" in parked.parked_detail


def parked_over(run_id: UUID) -> str:
    run = WorkflowRun.objects.get(pk=run_id)
    assert (run.state, run.parked_reason) == ("PARKED", "integrity")
    return run.parked_detail


@pytest.mark.django_db(transaction=True)
def test_an_item_that_was_changed_while_it_waited_for_its_turn_is_not_worked_on(world: World):
    """P13: to wake is not to seal."""
    seen: list[object] = []

    class Turns(Workflow[Way]):
        name, deadline = "turns", timedelta(days=1)

        @step(start=True, to=("look", "gather"))
        def begin(self, run: Run[Way]) -> StepReturn:
            return each(self.look, ["a", "b"], key=str, limit=1, then=self.gather)

        @step(to="gather")
        def look(self, run: Run[Way]) -> None:
            seen.append(run.item)
            StepRun.objects.filter(run=UUID(run.id), item_key="b", state="WAITING").update(input={"item": "eve"})

        @step(join=True, end=True)
        def gather(self, run: Run[Way]) -> None: ...

    run = api.start(Turns, {})
    world.run_until_idle()

    assert "what look is given" in parked_over(run.pk)
    assert seen == ["a"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("changed", [{"item": "eve", "wants": "paid"}, {"wants": "paid"}], ids=["other", "none"])
def test_an_item_that_was_changed_while_it_waited_for_a_signal_is_not_worked_on(world: World, changed: dict[str, Any]):
    seen: list[object] = []

    class Waits(Workflow[Way]):
        name, deadline = "waits", timedelta(days=1)

        @step(start=True, to=("listen", "gather"))
        def begin(self, run: Run[Way]) -> StepReturn:
            return each(self.listen, ["a"], key=str, then=self.gather)

        @step(to=("heard", "gather"))
        def listen(self, run: Run[Way]) -> StepReturn:
            return wait_for("paid", then=self.heard)

        @step(to="gather")
        def heard(self, run: Run[Way]) -> None:
            seen.append(run.item)

        @step(join=True, end=True)
        def gather(self, run: Run[Way]) -> None: ...

    run = api.start(Waits, {})
    world.run_until_idle()
    StepRun.objects.filter(run=run, name="heard").update(input=changed)

    api.signal(run.pk, "paid")
    world.run_until_idle()

    assert "what heard is given" in parked_over(run.pk)
    assert seen == []


@pytest.mark.django_db(transaction=True)
def test_a_join_that_is_gone_back_before_keeps_nothing_that_was_changed(world: World):
    """P13: how many items may fail stands in what the join was given; the redrive would have sealed it anew."""
    worked: list[object] = []

    class Stopping(Workflow[Way]):
        name, deadline = "stopping", timedelta(days=1)

        @step(start=True, to=("work", "gather"))
        def begin(self, run: Run[Way]) -> StepReturn:
            return each(self.work, ["a"], key=str, then=self.gather)

        @step(to="gather")
        def work(self, run: Run[Way]) -> None:
            worked.append(run.item)
            raise Permanent("no")

        @step(join=True, end=True)
        def gather(self, run: Run[Way]) -> None: ...

    run = api.start(Stopping, {})
    world.run_until_idle()
    changed = {"each": {"work": {"limit": None, "tolerates": None}}}
    StepRun.objects.filter(run=run, name="gather").update(input=changed)
    api.redrive(run.pk, reason="x", step="begin")
    world.run_until_idle()

    assert "what gather is given" in parked_over(run.pk)
    assert worked == ["a"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("given", [[], "x", 5, None])
def test_a_wait_that_holds_no_mapping_any_more_does_not_end_in_an_error(world: World, given: object):
    run_id = waiting(world, "signal in time")
    StepRun.objects.filter(run=run_id, waits_on="signal").update(input=Value(given, JSONField()))

    api.signal(run_id, "begin")
    world.clock.advance(days=3)
    world.run_until_idle()

    assert "is given" in parked_over(run_id)
    assert Signal.objects.get(run=run_id).used_by is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("changed", [{"cleanup": {"cancel": "pay"}}, {}, [], None, 5])
def test_a_run_whose_manifest_was_changed_is_not_gone_on_with_and_can_be_cancelled(world: World, changed: object):
    """P8, P13: what a run pinned says under what it goes on, and where its clean-up begins."""
    provider = Provider()
    run = api.start(pay_workflow(provider), {"amount": 5})
    WorkflowRun.objects.filter(pk=run.pk).update(manifest=Value(changed, JSONField()))

    world.run_until_idle()
    assert "the stored state does not match its digest" in parked_over(run.pk)
    api.cancel(run.pk, reason="not wanted")
    world.run_until_idle()

    ended = WorkflowRun.objects.get(pk=run.pk)
    assert (ended.state, provider.sends) == ("CANCELLED", [])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("changed", [{"amount": 500}, None])
def test_the_result_of_a_branch_that_was_changed_is_not_gathered(world: World, changed: object):
    """P13: the join would have gone on with it."""
    gathered: list[object] = []

    class Adding(Workflow[Way]):
        name, deadline = "adding", timedelta(days=1)

        @step(start=True, to=("work", "gather"))
        def begin(self, run: Run[Way]) -> StepReturn:
            return each(self.work, ["a", "b"], key=str, limit=1, then=self.gather)

        @step(to="gather")
        def work(self, run: Run[Way]) -> None:
            run.give_result({"amount": 5})
            StepRun.objects.filter(run=UUID(run.id), item_key="a", state="SUCCEEDED").update(output=changed)

        @step(join=True, end=True)
        def gather(self, run: Run[Way]) -> None:
            gathered.extend(one.value for one in run.results(self.work))

    run = api.start(Adding, {})
    world.run_until_idle()

    assert "the result of work for a does not match" in parked_over(run.pk)
    assert gathered == []


@pytest.mark.django_db(transaction=True)
def test_a_child_is_not_started_with_a_state_that_was_changed_from_outside(world: World):
    run = api.start(waiting_workflow(), {"way": "child"})
    run_step(run)
    world.lose_messages()
    waits = StepRun.objects.get(run=run, waits_on="child")
    wanted = {**waits.input["child"], "data": {"way": "timer"}}
    StepRun.objects.filter(pk=waits.pk).update(input={"child": wanted})

    world.run_until_idle()

    assert "what go_on is given" in parked_over(run.pk)
    assert not WorkflowRun.objects.filter(parent=run).exists()


@pytest.mark.django_db(transaction=True)
def test_where_a_time_out_leads_is_not_believed_when_it_was_changed(world: World):
    run_id = waiting(world, "signal in time")
    waits = StepRun.objects.get(run=run_id, waits_on="signal")
    StepRun.objects.filter(pk=waits.pk).update(input={**waits.input, "on_timeout": "go_on"})

    world.clock.advance(days=3)
    world.run_until_idle()

    assert "what go_on is given" in parked_over(run_id)


@pytest.mark.django_db(transaction=True)
def test_the_end_of_a_child_is_not_handed_to_a_step_that_was_changed(world: World):
    run_id = waiting(world, "child")
    waits = StepRun.objects.get(run=run_id, waits_on="child")
    StepRun.objects.filter(pk=waits.pk).update(input={**waits.input, "item": "eve"})

    api.signal(WorkflowRun.objects.get(parent_id=run_id).pk, "begin")
    world.run_until_idle()

    assert "what go_on is given" in parked_over(run_id)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", [{"output": 5}, {"state": "SUCCEEDED"}], ids=["a result", "a success"])
def test_what_a_branch_has_not_come_to_is_not_gathered(world: World, change: dict[str, Any]):
    """P13: the event of its end says that it has succeeded, and that it gave nothing."""
    seen: list[object] = []

    class Sums(Workflow[Way]):
        name, deadline = "sums", timedelta(days=1)

        @step(start=True, to=("look", "gather"))
        def begin(self, run: Run[Way]) -> StepReturn:
            return each(self.look, ["good", "bad"], key=str, then=self.gather, failures=3)

        @step(to="gather")
        def look(self, run: Run[Way]) -> None:
            if run.item == "bad":
                raise Permanent("no")

        @step(join=True, end=True)
        def gather(self, run: Run[Way]) -> None:
            seen.append([one.value for one in run.results(self.look)])

    run = api.start(Sums, {})
    while not StepRun.objects.filter(run=run, name="gather", state="READY").exists():
        world.deliver(*world.messages.popleft())
    StepRun.objects.filter(run=run, name="look", item_key="bad" if "state" in change else "good").update(**change)
    assert {one.code for one in verify().findings} == {"output-changed"}
    world.run_until_idle()

    assert "the result of look" in parked_over(run.pk)
    assert seen == []
