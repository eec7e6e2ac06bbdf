"""Going on from an earlier step: visits and keys are kept, so nothing is done twice unless somebody chooses so."""

from datetime import timedelta

import pytest

from durableflows import (
    InvalidState,
    NotAllowed,
    Permanent,
    Run,
    StepReturn,
    TooLate,
    UnknownOutcome,
    Workflow,
    WorkflowState,
    api,
    child,
    each,
    sleep,
    step,
    wait_for,
)
from durableflows.core import registry
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.errors import UnknownWorkflow
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.testing import World, open_request
from tests.support.flows import Provider, act_then_raise, pay_effect, raise_without_acting
from tests.support.look import fresh, how_often, state_of
from tests.support.parcels import Depot, lost_address, parcel_workflow
from tests.support.play import assert_chain

pytestmark = pytest.mark.django_db(transaction=True)


def sound() -> bool:
    return [one.text for one in examine() if one.severity is not Severity.ATTENTION] == []


def redrive(run: WorkflowRun, step: str, **more: object) -> WorkflowRun:
    return api.redrive(run.pk, reason="the address was corrected", step=step, **more)  # type: ignore[arg-type]


def failed(world: World, depot: Depot, **state: object) -> WorkflowRun:
    """A run that has paid the carrier and could not hand over."""
    depot.handing.append(lost_address())
    run = api.start(parcel_workflow(depot), state)
    world.run_until_idle()
    assert state_of(run) is RunState.FAILED
    return run


def test_a_failed_run_goes_on_from_the_step_that_failed(world: World):
    """S3.55."""
    depot = Depot()
    run = failed(world, depot)
    assert "redrive" in api.explain(run.pk).safe

    redriven = redrive(run, "hand_over")
    assert (redriven.state, redriven.error_text, redriven.ended_at) == (RunState.RUNNING, "", None)
    assert sound()
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(depot.carrier.sends) == len(depot.mailer.sends) == 1
    assert_chain(fresh(run))
    assert sound()


def test_from_an_earlier_step_confirmed_effects_return_their_receipts(world: World):
    """The visits after it are done again too, under the keys that they had."""
    depot = Depot()
    run = failed(world, depot, rounds=1)
    receipt = fresh(run).data["paid"]

    redrive(run, "pack")
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert depot.ran == ["pack", "pack", "pay", "hand_over", "pack", "pay", "hand_over", "tell"]
    assert len(depot.carrier.sends) == 1
    assert fresh(run).data["paid"] == receipt
    assert [how_often(run, name) for name in ("pack", "pay", "hand_over")] == [2, 1, 1]
    assert sound()


def test_a_confirmed_effect_is_done_once_more_only_by_choice(world: World, admin_user):
    """P3: a new issue under a new key, which names the row that it replaces; the choice is on record."""
    depot = Depot()
    run = failed(world, depot)
    seen = api.preview("redrive", run.pk, step="pay", repeat=("post.pay",))
    assert (seen.refused, seen.begins) == ("", ("pay", "hand_over"))
    assert seen.repeats == ("post.pay of pay",)
    assert [str(one) for one in seen.money["repeats"]] == ["EUR 12.50"]

    api.redrive(run.pk, by=admin_user, reason="the label was void", step="pay", repeat=("post.pay",))
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    old, new = SideEffect.objects.filter(run=run, effect="post.pay").order_by("issue")
    assert (new.issue, new.replaces_id) == (2, old.pk)
    assert (old.verdict, old.verdict_by, old.verdict_reason) == ("repeat", "admin", "the label was void")
    assert depot.carrier.acts == [old.key, new.key]
    assert fresh(run).data["paid"] == "pay_2"
    assert RunEvent.objects.get(run=run, kind="run.redriven").data["repeat"] == [old.key]
    assert sound()


def test_what_people_have_approved_is_repeated_only_when_they_are_asked_anew(world: World, admin_user):
    """P9: a decision counts once; an operator alone may not do by it twice what was approved."""
    depot = Depot(handing=[lost_address()])
    run = api.start(parcel_workflow(depot), {"ask": True})
    world.run_until_idle()
    first = open_request(run.pk)
    api.answer(first.pk, "approve", by=admin_user, facts_digest=first.facts_digest)
    world.run_until_idle()
    assert state_of(run) is RunState.FAILED

    with pytest.raises(InvalidState, match=r"post\.pay was approved at sign_off, and a decision counts once"):
        redrive(run, "pay", repeat=("post.pay",))
    assert "people are asked anew" in api.preview("redrive", run.pk, step="pay", repeat=("post.pay",)).refused

    redrive(run, "sign_off", repeat=("post.pay",))
    world.run_until_idle()
    assert len(depot.carrier.acts) == 1
    again = open_request(run.pk)
    api.answer(again.pk, "approve", by=admin_user, facts_digest=again.facts_digest)
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(depot.carrier.acts) == 2
    assert sound()


def test_the_choice_counts_once(world: World):
    depot = Depot()
    run = failed(world, depot)
    redrive(run, "hand_over")
    depot.handing.append(lost_address())
    world.run_until_idle()
    depot.handing.append(lost_address())
    redrive(run, "pay", repeat=["post.pay"])
    world.run_until_idle()
    assert len(depot.carrier.acts) == 2

    redrive(run, "pay")
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(depot.carrier.acts) == 2
    assert fresh(run).data["paid"] == "pay_2"


def test_a_choice_that_was_not_carried_out_ends_with_the_next_redrive(world: World):
    depot = Depot()
    run = failed(world, depot)
    redrive(run, "pay", repeat=["post.pay"])
    api.pause(run.pk, reason="wait, no")

    redrive(run, "pay")
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(depot.carrier.acts) == 1


def test_the_preview_names_what_was_refused_and_how_it_is_tried_anew(world: World, admin_user):
    depot = Depot(carrier=Provider(faults=[raise_without_acting(Permanent("no such account"))]))
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    assert state_of(run) is RunState.FAILED
    (kept,) = api.preview("redrive", run.pk, step="pay").keeps
    assert kept.startswith("pay: post.pay was refused (")
    assert "did_not_happen" in kept

    redrive(run, "pay")
    world.run_until_idle()
    assert (state_of(run), len(depot.carrier.sends)) == (RunState.FAILED, 1)  # as said: nobody was asked

    row = SideEffect.objects.get(run=run)
    api.resolve_effect(row.pk, "did_not_happen", by=admin_user, reason="opened", row_version=row.row_version)
    assert api.preview("redrive", run.pk, step="pay").keeps == ()
    redrive(run, "pay")
    world.run_until_idle()
    assert state_of(run) is RunState.SUCCEEDED


def test_a_parked_run_is_sent_back(world: World):
    depot = Depot(handing=[RuntimeError("a bug")])
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    assert state_of(run) is RunState.PARKED

    redrive(run, "pay")
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert depot.ran == ["pack", "pay", "hand_over", "pay", "hand_over", "tell"]
    assert len(depot.carrier.sends) == 1
    assert how_often(run, "hand_over") == 1
    assert sound()


def test_a_paused_run_that_asks_is_sent_back_and_asks_anew(world: World, admin_user):
    depot = Depot()
    run = api.start(parcel_workflow(depot), {"ask": True})
    world.run_until_idle()
    old = open_request(run.pk)
    api.pause(run.pk, reason="the wrong parcel")
    assert "the request 'Send it'" in api.preview("redrive", run.pk, step="pack").closes

    redrive(run, "pack")
    world.run_until_idle()

    new = open_request(run.pk)
    assert ApprovalRequest.objects.get(pk=old.pk).state == "CLOSED"
    assert new.step_id == old.step_id
    api.answer(new.pk, "approve", by=admin_user, facts_digest=new.facts_digest)
    world.run_until_idle()
    assert state_of(run) is RunState.SUCCEEDED


def test_it_is_refused_while_an_effect_is_open(world: World):
    depot = Depot()
    depot.carrier.faults = [act_then_raise(UnknownOutcome("cut"))]
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    api.pause(run.pk, reason="x")

    with pytest.raises(TooLate, match=r"post.pay is UNKNOWN: it must be settled"):
        redrive(run, "pack")
    assert "must be settled" in api.preview("redrive", run.pk, step="pack").refused


def test_it_is_refused_while_a_worker_is_at_it(world: World):
    depot = Depot()
    run = api.start(parcel_workflow(depot), {})
    refused: list[str] = []

    def interfere(name: str) -> None:
        if name == "hand_over":
            api.pause(run.pk, reason="x")
            with pytest.raises(TooLate) as error:
                redrive(run, "pack")
            refused.append(str(error.value))

    depot.during = interfere
    world.run_until_idle()

    assert refused == ["a worker is at hand_over: wait until it has ended"]


def test_which_runs_are_not_redriven(world: World):
    done = api.start(parcel_workflow(Depot()), {})
    live = api.start("send", {})
    with pytest.raises(TooLate, match="pause it first"):
        redrive(live, "pack")
    api.cancel(live.pk, reason="x")
    with pytest.raises(TooLate, match="that is final"):
        redrive(live, "pack")
    world.run_until_idle()
    with pytest.raises(TooLate, match="start a new run"):
        redrive(done, "pack")
    late = api.start("send", {})
    world.clock.advance(days=20)
    world.run_until_idle()
    with pytest.raises(TooLate, match="extend it"):
        redrive(late, "pack")


def test_a_run_past_its_deadline_is_extended_first(world: World):
    depot = Depot()
    run = failed(world, depot)
    world.clock.advance(days=20)
    with pytest.raises(TooLate, match="extend it first"):
        redrive(run, "hand_over")
    assert "redrive" not in api.explain(run.pk).safe

    api.extend(run.pk, reason="x", deadline=timedelta(days=1))
    redrive(run, "hand_over")
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"step": "tell"}, "has not been at 'tell'; it has been at pack, pay, hand_over"),
        ({"step": "pak"}, "has not been at 'pak'"),
        ({"step": "pay", "item": "x"}, "for item 'x'"),
        ({"step": "pay", "repeat": ("post.tell",)}, "'post.tell' has not happened .* post.pay has"),
        ({"step": "hand_over", "repeat": ("post.pay",)}, "'post.pay' has not happened .* nothing has"),
        ({"step": "pay", "repeat": "post.pay"}, "collection of names"),
    ],
)
def test_what_does_not_fit_is_refused(world: World, more: dict[str, object], text: str):
    run = failed(world, Depot())
    before = fresh(run).row_version

    with pytest.raises(InvalidState, match=text):
        redrive(run, **more)  # type: ignore[arg-type]
    assert fresh(run).row_version == before


def test_the_owner_alone_may_not_redrive(world: World, django_user_model):
    owner = django_user_model.objects.create_user("owner")
    depot = Depot(handing=[lost_address()])
    run = api.start(parcel_workflow(depot), {}, by=owner)
    world.run_until_idle()

    with pytest.raises(NotAllowed):
        api.redrive(run.pk, by=owner, reason="x", step="pay")
    assert "may not redrive" in api.preview("redrive", run.pk, by=owner, step="pay").refused


def test_a_process_without_the_workflow_leaves_the_run_as_it_is(world: World):
    run = failed(world, Depot())

    with registry.isolated(), pytest.raises(UnknownWorkflow):
        redrive(run, "pay")
    assert state_of(run) is RunState.FAILED


class Parts(WorkflowState):
    found: list[str] = []


def items_workflow(broken: list[str], ran: list[str]) -> type[Workflow[Parts]]:
    class Items(Workflow[Parts]):
        name, deadline = "items", timedelta(days=9)

        @step(start=True, to=("check", "report"))
        def begin(self, run: Run[Parts]) -> StepReturn:
            ran.append("begin")
            return each(self.check, ["a", "b", "c"], key=str, limit=1, then=self.report)

        @step(to="weigh")
        def check(self, run: Run[Parts]) -> None:
            ran.append(f"check {run.item}")

        @step(to="report")
        def weigh(self, run: Run[Parts]) -> None:
            ran.append(f"weigh {run.item}")
            if run.item in broken:
                raise Permanent("too heavy")
            run.give_result(run.item)

        @step(join=True, end=True)
        def report(self, run: Run[Parts]) -> None:
            run.state.found = [str(one.value) for one in run.results(self.weigh)]

    return Items


def test_one_item_is_done_again_and_the_others_go_on(world: World):
    broken: list[str] = ["b"]
    ran: list[str] = []
    run = api.start(items_workflow(broken, ran), {})
    world.run_until_idle()
    assert state_of(run) is RunState.FAILED
    broken.clear()
    ran.clear()

    redrive(run, "check", item="b")
    assert sound()
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert ran == ["check b", "weigh b", "check c", "weigh c"]
    assert fresh(run).data["found"] == ["a", "b", "c"]
    assert how_often(run, "report") == 1


def test_all_items_are_done_again_from_the_step_before_them(world: World):
    broken: list[str] = ["b"]
    ran: list[str] = []
    run = api.start(items_workflow(broken, ran), {})
    world.run_until_idle()
    broken.clear()
    ran.clear()

    redrive(run, "begin")
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert ran == ["begin", "check a", "weigh a", "check b", "weigh b", "check c", "weigh c"]
    assert fresh(run).data["found"] == ["a", "b", "c"]
    assert StepRun.objects.filter(run=run).count() == 1 + 3 + 3 + 1
    assert sound()


class Way(WorkflowState):
    way: str = "signal"
    heard: str = ""


def waiting_workflow(troubles: dict[str, Exception]) -> type[Workflow[Way]]:
    """`troubles`: what goes wrong in the last step of a run that waits so."""

    class Waits(Workflow[Way]):
        name, deadline = "waits", timedelta(days=9)

        @step(start=True, to="listen")
        def begin(self, run: Run[Way]) -> StepReturn:
            if run.state.way == "signal":
                return wait_for("go", then=self.listen)
            return child("waits", {"way": "signal"}, then=self.listen)

        @step(to="last")
        def listen(self, run: Run[Way]) -> None:
            run.state.heard = str(run.signal.payload) if run.signal else "child"

        @step(end=True)
        def last(self, run: Run[Way]) -> None:
            if run.state.way in troubles:
                raise troubles.pop(run.state.way)

    return Waits


def test_a_signal_that_came_is_not_waited_for_again(world: World):
    run = api.start(waiting_workflow({"signal": Permanent("no")}), {})
    api.signal(run.pk, "go", "first")
    api.signal(run.pk, "go", "second")
    world.run_until_idle()
    assert state_of(run) is RunState.FAILED

    redrive(run, "begin")
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).data["heard"] == "first"


def test_a_child_that_has_ended_well_is_not_started_again(world: World):
    run = api.start(waiting_workflow({"child": Permanent("no")}), {"way": "child"})
    world.run_until_idle()
    inner = WorkflowRun.objects.get(parent=run)
    api.signal(inner.pk, "go")
    world.run_until_idle()
    assert (state_of(inner), state_of(run)) == (RunState.SUCCEEDED, RunState.FAILED)

    redrive(run, "begin")
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert WorkflowRun.objects.filter(parent=run).count() == 1
    assert how_often(run, "listen") == 1
    assert sound()


def test_a_child_that_failed_stands_in_the_way(world: World):
    run = api.start(waiting_workflow({"signal": Permanent("no")}), {"way": "child"})
    world.run_until_idle()
    inner = WorkflowRun.objects.get(parent=run)
    api.signal(inner.pk, "go")
    world.run_until_idle()
    assert (state_of(inner), state_of(run)) == (RunState.FAILED, RunState.FAILED)

    with pytest.raises(TooLate, match="it is not started again"):
        redrive(run, "begin")
    with pytest.raises(TooLate, match="has gone on without it"):
        redrive(inner, "last")


@pytest.mark.parametrize("news", ["audit", "verdict"])
@pytest.mark.parametrize("wait", ["timer", "signal"])
def test_news_of_an_effect_do_not_end_the_wait_before_its_step(world: World, wait: str, news: str):
    """The visit is done again, and waits first; what becomes known of its effect of before is no reason to begin."""
    provider = Provider(faults=[raise_without_acting(UnknownOutcome("cut"))])
    pay_it = pay_effect(provider, key_window=None)
    days = timedelta(days=3)

    class Patient(Workflow[Parts]):
        name, deadline = "patient", timedelta(days=30)

        @step(start=True, to=("pay", "late"))
        def begin(self, run: Run[Parts]) -> StepReturn:
            if not provider.sends:
                return self.pay
            if wait == "timer":
                return sleep(days, then=self.pay)
            return wait_for("paid", then=self.pay, timeout=days, on_timeout=self.late)

        @step(end=True, effects=(pay_it,))
        def pay(self, run: Run[Parts]) -> None:
            run.effect(pay_it, amount=5)

        @step(end=True)
        def late(self, run: Run[Parts]) -> None: ...

    run = api.start(Patient, {})
    world.run_through()
    row = SideEffect.objects.get(run=run)
    assert row.state == EffectState.ABSENT
    api.pause(run.pk, reason="another way")
    redrive(run, "begin")
    world.run_until_idle()
    until = StepRun.objects.get(run=run, name="pay").wake_at

    if news == "audit":
        world.clock.advance(hours=25)
        world.run_until_idle()
        assert SideEffect.objects.get(run=run).audit_at is None
    else:
        row.refresh_from_db()
        api.resolve_effect(row.pk, "did_not_happen", reason="seen", row_version=row.row_version)
        world.run_until_idle()

    waits = StepRun.objects.get(run=run, name="pay")
    assert (waits.state, waits.waits_on, waits.wake_at) == (StepState.WAITING, wait, until)


def test_explain_tells_it(world: World, admin_user):
    run = failed(world, Depot())
    api.redrive(run.pk, by=admin_user, reason="void label", step="pay", repeat=("post.pay",))

    told = [line.text for line in api.explain(run.pk).lines]

    assert "Sent back to pay by admin: void label" in told
    assert "admin wants post.pay, which has happened, to be done once more: void label" in told
    assert StepRun.objects.get(run=run, name="pay").state == StepState.READY
    assert SideEffect.objects.get(run=run).state == EffectState.CONFIRMED
