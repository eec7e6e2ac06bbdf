"""What a verb says before it is done: no repeat, no limit and no payment that does not stand is left unsaid."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from durableflows import Budget, Facts, InvalidState, Money, Run, StepReturn, Workflow, api, approval, child, step
from durableflows.core.states import RunState
from durableflows.errors import ChangedOutside, TooLate
from durableflows.models import SideEffect, WorkflowRun
from durableflows.services import edit
from durableflows.testing import World, open_request
from tests.support.look import state_of
from tests.support.parcels import Depot, Parcel, lost_address, parcel_workflow, paying

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def failed(world: World, depot: Depot) -> WorkflowRun:
    """A run that has paid the carrier and could not hand over."""
    depot.handing.append(lost_address())
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    return run


def test_a_repeat_that_was_chosen_before_is_named_by_whatever_lets_the_run_go_on(world: World):
    depot = Depot()
    run = failed(world, depot)
    api.redrive(run.pk, reason="the label was void", step="pay", repeat=("post.pay",))
    api.pause(run.pk, reason="wait")

    for verb, more in (("resume", {}), ("extend", {"deadline": DAY}), ("edit", {"changes": {"rounds": 1}})):
        seen = api.preview(verb, run.pk, **more)
        assert (seen.refused, seen.repeats, seen.confirmed) == ("", ("post.pay of pay",), ())
        assert [str(one) for one in seen.money["repeats"]] == ["EUR 12.50"]
    assert api.preview("cancel", run.pk).confirmed == ("post.pay of pay",)
    assert api.preview("redrive", run.pk, step="pay").confirmed == ("post.pay of pay",)

    api.resume(run.pk, reason="go on")
    world.run_until_idle()
    assert len(depot.carrier.acts) == 2
    assert api.preview("pause", run.pk).repeats == ()


def test_what_does_not_stand_any_more_and_what_could_not_be_undone_are_named(world: World):
    run = failed(world, Depot())
    effects = SideEffect.objects.filter(run=run)

    effects.update(state="UNDO_FAILED")
    assert api.preview("extend", run.pk, deadline=DAY).confirmed == ("post.pay of pay",)

    effects.update(state="REVERSED")
    (kept,) = api.preview("redrive", run.pk, step="hand_over").keeps
    assert kept == "pay: post.pay was taken back by its provider, and is not sent again unless you choose it"
    assert api.preview("redrive", run.pk, step="pay", repeat=("post.pay",)).keeps == ()


def test_an_extension_says_what_each_limit_becomes(world: World):
    run = api.start(parcel_workflow(Depot(), limits=Budget(tool_calls=2, iterations=3)), {})
    until = run.deadline_at + 2 * DAY

    seen = api.preview("extend", run.pk, deadline=2 * DAY, budget={"tool_calls": 5})
    assert seen.changes == (
        f"deadline: {run.deadline_at:%Y-%m-%d %H:%M:%S} UTC -> {until:%Y-%m-%d %H:%M:%S} UTC",
        "tool_calls: 2 -> 7",
    )

    WorkflowRun.objects.update(deadline_at=world.clock.now() - DAY)
    (late,) = api.preview("extend", run.pk, deadline=2 * DAY).changes
    world.clock.advance(seconds=70)
    assert api.preview("extend", run.pk, deadline=2 * DAY).changes == (late,), "else no page of it could be sent"


def test_a_run_that_another_person_has_acted_on_meanwhile_is_not_called_changed_from_outside(world: World):
    run = failed(world, Depot())
    read = WorkflowRun.objects.get(pk=run.pk)
    api.extend(run.pk, reason="it needs longer", deadline=DAY)

    with pytest.raises(TooLate, match="look at it again"):
        edit.work_out(read, {"rounds": 1}, None)

    WorkflowRun.objects.filter(pk=run.pk).update(data={**read.data, "rounds": 7})
    with pytest.raises(ChangedOutside):
        edit.work_out(WorkflowRun.objects.get(pk=run.pk), {"rounds": 1}, None)


def booked_between(depot: Depot) -> type[Workflow[Parcel]]:
    """pack -> sign_off -> book -> pay -> hand_over."""
    pay_carrier = paying(depot)

    def show(run: Run[Parcel]) -> Facts:
        return Facts(binding={"rounds": run.state.rounds})

    class Booked(Workflow[Parcel]):
        """Send a parcel, and book it before it is paid."""

        name, deadline = "booked", timedelta(days=10)

        sign_off = approval(
            title="Send it",
            shows=show,
            permission="durableflows.answer_approval",
            approved="book",
            rejected="hand_over",
            expires=timedelta(days=3),
        )

        @step(start=True, to="sign_off")
        def pack(self, run: Run[Parcel]) -> None: ...

        @step(to="pay")
        def book(self, run: Run[Parcel]) -> None: ...

        @step(to="hand_over", effects=(pay_carrier,))
        def pay(self, run: Run[Parcel]) -> None:
            run.state.paid = run.effect(pay_carrier, amount=Money(1250, "EUR")).id

        @step(end=True)
        def hand_over(self, run: Run[Parcel]) -> None:
            if depot.handing:
                raise depot.handing.pop(0)

    return Booked


def approve(run: WorkflowRun, by: User) -> None:
    asked = open_request(run.pk)
    api.answer(asked.pk, "approve", by=by, facts_digest=asked.facts_digest)


def test_what_was_approved_is_repeated_from_the_approval_alone_also_with_steps_between(world: World, admin_user: User):
    """P9: a decision counts once, however far behind it the payment is."""
    depot = Depot(handing=[lost_address()])
    run = api.start(booked_between(depot), {})
    world.run_until_idle()
    approve(run, admin_user)
    world.run_until_idle()
    assert state_of(run) is RunState.FAILED

    for name in ("pay", "book"):
        with pytest.raises(InvalidState, match=r"post\.pay was approved at sign_off, and a decision counts once"):
            api.redrive(run.pk, reason="void label", step=name, repeat=("post.pay",))
    for name in ("sign_off", "pack"):
        assert api.preview("redrive", run.pk, step=name, repeat=("post.pay",)).refused == ""

    api.redrive(run.pk, reason="void label", step="pack", repeat=("post.pay",))
    world.run_until_idle()
    assert len(depot.carrier.acts) == 1
    approve(run, admin_user)
    world.run_until_idle()
    assert len(depot.carrier.acts) == 2


def children_of_a_decision(depot: Depot) -> type[Workflow[Parcel]]:
    """Asks, and lets another run pay."""
    pay_carrier = paying(depot)

    class Paying(Workflow[Parcel]):
        """Pay the carrier."""

        name, deadline = "paying", timedelta(days=3)

        @step(start=True, to="hand_over", effects=(pay_carrier,))
        def pay(self, run: Run[Parcel]) -> None:
            run.state.paid = run.effect(pay_carrier, amount=Money(1250, "EUR")).id

        @step(end=True)
        def hand_over(self, run: Run[Parcel]) -> None:
            raise RuntimeError("a bug")

    class Asking(Workflow[Parcel]):
        """Ask whether to send it."""

        name, deadline = "asking", timedelta(days=10)

        @step(start=True, to="sign_off")
        def pack(self, run: Run[Parcel]) -> None: ...

        sign_off = approval(
            title="Send it",
            shows=lambda run: Facts(binding={"id": 1}),
            permission="durableflows.answer_approval",
            approved="send",
            rejected="done",
            expires=timedelta(days=3),
        )

        @step(to="done")
        def send(self, run: Run[Parcel]) -> StepReturn:
            return child("paying", {}, then=self.done)

        @step(end=True)
        def done(self, run: Run[Parcel]) -> None: ...

    return Asking


def test_what_was_approved_in_the_run_that_started_it_is_repeated_by_no_child(world: World, admin_user: User):
    """P9."""
    run = api.start(children_of_a_decision(Depot()), {})
    world.run_until_idle()
    approve(run, admin_user)
    world.run_until_idle()
    paid = WorkflowRun.objects.get(parent=run)
    assert state_of(paid) is RunState.PARKED

    refused = api.preview("redrive", paid.pk, step="pay", repeat=("post.pay",)).refused
    assert f"sign_off is of run {run.pk}, which has started this one" in refused
    assert api.preview("redrive", paid.pk, step="pay").refused == ""
