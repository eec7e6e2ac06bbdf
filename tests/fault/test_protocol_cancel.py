"""Protocol rules 3 and 10: a cancel is asked at once and confirmed when nothing is in doubt or on its way."""

from collections.abc import Callable

import pytest

from durableflows import NeverSent, Permanent, TooLate, UnknownOutcome, api, boundaries, runner
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.errors import LeaseLost, RunHalted
from durableflows.testing import Boundary, World
from tests.support.flows import Provider, act_then_raise, answer_pending
from tests.support.play import SETTLE, Stage, assert_sound, stage, state_of

pytestmark = pytest.mark.django_db(transaction=True)


def cancel(played: Stage) -> None:
    api.cancel(played.run_id, reason="changed my mind")


def test_a_cancel_waits_for_the_answer_that_is_out(world: World):
    """Rule 10, P6; the trace "A writes DISPATCHED; cancel confirmed; A sends"."""
    played = stage(world)
    holder = played.hand("A").claim().reserve()

    cancel(played)
    played.sweep()

    assert state_of(played.run_id) is RunState.ENDING
    assert played.step().state == StepState.RUNNING
    assert holder.record(holder.act()) is EffectState.CONFIRMED
    played.sweep()
    assert state_of(played.run_id) is RunState.CANCELLED
    with pytest.raises(LeaseLost):
        holder.settle()
    assert played.run().alert == ""
    assert len(played.provider.acts) == 1
    assert_sound(played.run_id, played.provider)


def test_a_cancel_waits_for_an_open_send_though_the_row_is_confirmed(world: World):
    """Rules 3 and 10; "cancel confirmed while a send is open": B's request would leave after the confirmation."""
    played = stage(world)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.pass_time(5)
    played.sweep()
    fresh = played.hand("B").claim().reserve()
    assert slow.record(slow.act()) is EffectState.CONFIRMED

    cancel(played)
    played.sweep()

    assert state_of(played.run_id) is RunState.ENDING
    fresh.act()  # it leaves now: the cancel is asked, not confirmed
    fresh.lose_lease()
    played.pass_time(SETTLE - 1)
    played.sweep()
    assert state_of(played.run_id) is RunState.ENDING
    played.pass_time(1)
    played.sweep()
    assert state_of(played.run_id) is RunState.CANCELLED
    assert len(played.provider.acts) == 1
    assert_sound(played.run_id, played.provider)


def test_a_receipt_closes_its_own_send_only(world: World):
    """Rule 3: three sends; the last two are explained, the first may still leave its worker."""
    played = stage(world)
    first = played.hand("A").claim().reserve().lose_lease()
    played.sweep()
    second = played.hand("B").claim().reserve().lose_lease()
    played.sweep()
    third = played.hand("C").claim().reserve()
    second.record(second.act())
    third.record(third.act())

    cancel(played)
    played.sweep()

    assert state_of(played.run_id) is RunState.ENDING
    first.act()
    played.pass_time(SETTLE)
    played.sweep()
    assert state_of(played.run_id) is RunState.CANCELLED
    assert_sound(played.run_id, played.provider)


def test_answers_to_all_sends_close_the_row_before_the_settle_time(world: World):
    """Rule 3: nobody waits for what is known."""
    played = stage(world)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.sweep()
    fresh = played.hand("B").claim().reserve()
    slow.record(slow.act())
    fresh.record(fresh.act())

    cancel(played)

    assert state_of(played.run_id) is RunState.CANCELLED


@pytest.mark.parametrize("lookup", [True, False])
def test_a_cancel_in_doubt_is_settled_by_a_lookup_or_a_person_and_never_by_another_send(world: World, lookup: bool):
    """Rule 10, P6, P15: not even under the same key, which the provider would honour."""
    played = stage(world, lookup=lookup)
    first = played.hand("A").claim().reserve()
    first.act()
    first.fail(UnknownOutcome("read timed out"))
    first.settle_doubtful()

    cancel(played)
    world.run_through()

    if not lookup:
        assert state_of(played.run_id) is RunState.ENDING
        assert played.step().needs_person
        assert_sound(played.run_id, played.provider)
        played.pass_time()
        row = played.row()
        api.resolve_effect(row.pk, "happened", reason="seen", row_version=row.row_version, receipt={"id": "pay_1"})
        world.run_through()
    assert state_of(played.run_id) is RunState.CANCELLED
    assert played.row().state == EffectState.CONFIRMED
    assert len(played.provider.sends) == 1
    assert_sound(played.run_id, played.provider)


def test_a_ready_step_in_doubt_goes_to_reconciliation_by_the_cancel(world: World):
    """Rule 10; "limbo under cancel": the reconciler made it READY for the same key, then every claim is refused."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.act()
    first.lose_lease()
    played.sweep()
    assert played.step().state == StepState.READY
    assert played.row().state == EffectState.UNKNOWN

    cancel(played)

    assert played.step().state == StepState.NEEDS_RECONCILIATION
    assert not played.hand("B").may_claim()
    world.run_through()
    assert state_of(played.run_id) is RunState.CANCELLED
    assert played.row().state == EffectState.CONFIRMED
    assert len(played.provider.sends) == 1
    assert_sound(played.run_id, played.provider)


def test_a_claimed_step_in_doubt_is_put_back_and_reconciled(world: World):
    """Rule 10: "READY (or put back)": B has claimed for the same key, the cancel comes, B may not reserve."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.act()
    first.lose_lease()
    played.sweep()
    second = played.hand("B").claim()

    cancel(played)

    assert state_of(played.run_id) is RunState.ENDING
    with pytest.raises(RunHalted):
        second.ask()
    second.lose_lease()
    world.run_through()
    assert state_of(played.run_id) is RunState.CANCELLED
    assert played.row().state == EffectState.CONFIRMED
    assert len(played.provider.sends) == 1
    assert_sound(played.run_id, played.provider)


def test_a_body_that_is_halted_in_doubt_leaves_no_limbo(world: World):
    """Rule 10: the runner's own path of the test before."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.act()
    first.lose_lease()
    played.sweep()

    _at(played, Boundary.EFFECT_BEFORE_RESERVE, lambda: cancel(played))
    world.run_through()

    assert state_of(played.run_id) is RunState.CANCELLED
    assert len(played.provider.sends) == 1
    assert_sound(played.run_id, played.provider)


def test_a_running_step_is_fenced_by_the_confirmed_cancel(world: World):
    """Rule 10, P2, P6: nothing is open, so the lease is taken at once; the worker can neither reserve nor settle."""
    played = stage(world)
    slow = played.hand("A").claim()

    cancel(played)

    assert state_of(played.run_id) is RunState.CANCELLED
    step = played.step()
    assert (step.state, step.lease_token) == (StepState.CANCELLED, None)
    with pytest.raises(LeaseLost):
        slow.ask()
    with pytest.raises(LeaseLost):
        slow.settle()
    assert played.provider.sends == []
    assert not played.run().steps.filter(name="done").exists()
    assert_sound(played.run_id, played.provider)


def test_nothing_is_claimed_or_woken_after_a_cancel(world: World):
    """S2.12: Rule 10, P6: the retry that was scheduled does not happen."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.fail(NeverSent("refused"))
    first.settle_failed()
    assert played.step().state == StepState.RETRY_SCHEDULED

    cancel(played)
    played.pass_time(3600)
    world.run_through()

    assert state_of(played.run_id) is RunState.CANCELLED
    assert played.provider.sends == []
    assert_sound(played.run_id, played.provider)


def test_a_refusal_during_a_cancel_ends_the_run_as_cancelled(world: World):
    """Rule 10: what was under way is recorded; no failure overtakes the cancel."""
    played = stage(world)
    holder = played.hand("A").claim().reserve()
    cancel(played)

    holder.fail(Permanent("card expired"))
    played.sweep()

    assert state_of(played.run_id) is RunState.CANCELLED
    assert played.row().state == EffectState.REJECTED
    assert_sound(played.run_id, played.provider)


def test_a_cancel_waits_for_what_the_provider_has_accepted(world: World):
    """Rule 10, P15: ACCEPTED is open."""
    provider = Provider(faults=[answer_pending])
    played = stage(world, provider=provider)
    world.run_until_idle()
    assert state_of(played.run_id) is RunState.WAITING

    cancel(played)
    world.run_until_idle()
    assert state_of(played.run_id) is RunState.ENDING
    provider.known = {key: receipt.model_copy(update={"status": "done"}) for key, receipt in provider.known.items()}
    world.run_through()

    assert state_of(played.run_id) is RunState.CANCELLED
    assert played.row().state == EffectState.CONFIRMED
    assert_sound(played.run_id, provider)


def test_a_worker_that_dies_while_a_cancel_waits_leaves_doubt_that_is_settled(world: World):
    """Rules 6 and 10."""
    played = stage(world, keyed=False)
    holder = played.hand("A").claim().reserve()
    cancel(played)
    holder.act()

    holder.lose_lease()
    assert played.step().state == StepState.NEEDS_RECONCILIATION
    world.run_through()

    assert state_of(played.run_id) is RunState.CANCELLED
    assert played.row().state == EffectState.CONFIRMED
    assert_sound(played.run_id, played.provider)


def test_a_person_s_new_try_is_not_sent_when_the_run_is_being_cancelled(world: World):
    """Rule 10: "did not happen" ends the doubt; the re-send that it would allow does not come."""
    played = stage(world, keyed=False, lookup=False)
    played.hand("A").claim().reserve().lose_lease()
    played.pass_time()
    cancel(played)
    row = played.row()

    api.resolve_effect(row.pk, "did_not_happen", reason="I looked", row_version=row.row_version)
    world.run_through()

    assert state_of(played.run_id) is RunState.CANCELLED
    assert played.provider.sends == []
    assert_sound(played.run_id, played.provider)


def test_a_deadline_in_doubt_waits_as_a_cancel_does(world: World):
    """P7, P15: the run may not end while its effect is in doubt, whatever it ends for."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.act()
    first.lose_lease()
    played.sweep()

    played.pass_time(15 * 86400)
    played.sweep()
    assert state_of(played.run_id) in (RunState.ENDING, RunState.NEEDS_RECONCILIATION)
    world.run_through()

    assert state_of(played.run_id) is RunState.DEADLINE_EXCEEDED
    assert played.row().state == EffectState.CONFIRMED
    assert len(played.provider.sends) == 1
    assert_sound(played.run_id, played.provider)


def test_a_second_cancel_changes_nothing_and_one_after_the_end_is_too_late(world: World):
    """P6."""
    played = stage(world, provider=Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("?"))]), keyed=False)
    world.run_until_idle()
    cancel(played)
    asked = played.run().cancel_asked_at
    played.pass_time(3)

    cancel(played)

    assert played.run().cancel_asked_at == asked
    world.run_through()
    with pytest.raises(TooLate):
        cancel(played)
    assert len(played.events("run.cancel_asked")) == 1


def _at(played: Stage, boundary: Boundary, act: Callable[[], None]) -> None:
    """Do something when the worker comes to a boundary, once, in one delivery of what is READY."""
    done: list[int] = []

    def hook(crossed: Boundary) -> None:
        if crossed is boundary and not done:
            done.append(1)
            act()

    boundaries.install(hook)
    try:
        runner.run_step(played.run_id, played.step().pk)
    finally:
        boundaries.install(None)
    assert done
