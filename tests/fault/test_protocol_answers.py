"""Protocol rules 6, 7 and 8: what an answer says about an effect, whoever brings it and however late."""

import pytest

from durableflows import NeverSent, Permanent, Transient, UnknownOutcome, api
from durableflows.core.outcomes import Answer, AnswerKind
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.errors import LeaseLost
from durableflows.services import runs
from durableflows.testing import World
from tests.support.flows import PayReceipt, Provider, answer_pending
from tests.support.play import SETTLE, assert_sound, stage, state_of

pytestmark = pytest.mark.django_db(transaction=True)


# Rule 6


def test_a_freed_lease_leaves_doubt_in_the_same_commit(world: World):
    """Rule 6, P5; the trace "A sends, acts; freed; READY; B sends" at a provider without keys."""
    played = stage(world, keyed=False, lookup=False)
    first = played.hand("A").claim().reserve()
    first.act()

    first.lose_lease()

    assert played.row().state == EffectState.UNKNOWN
    assert played.row().in_doubt_since is not None
    assert played.step().state == StepState.NEEDS_RECONCILIATION
    world.run_through()
    assert played.step().needs_person
    assert played.run().alert
    assert len(played.provider.sends) == 1
    assert_sound(played.run_id, played.provider)


def test_a_claimed_step_whose_effect_is_in_doubt_goes_to_reconciliation_when_freed(world: World):
    """Rule 6: the row is UNKNOWN already; B has claimed it for a second send and not begun one."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.fail(UnknownOutcome("read timed out"))
    first.settle_doubtful()
    played.pass_time(60)
    played.sweep()
    second = played.hand("B").claim()

    second.lose_lease()

    assert played.step().state == StepState.NEEDS_RECONCILIATION
    assert played.row().state == EffectState.UNKNOWN
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert_sound(played.run_id, played.provider)


def test_a_settlement_without_an_answer_is_doubt(world: World):
    """Rule 6, P15: a body that ends while its own send is open cannot end the step."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.act()

    first.settle()

    assert played.row().state == EffectState.UNKNOWN
    assert played.step().state == StepState.NEEDS_RECONCILIATION
    world.run_through()
    assert len(played.provider.acts) == 1
    assert_sound(played.run_id, played.provider)


# Rule 7


def test_a_send_that_did_nothing_says_nothing_about_an_earlier_one(world: World):
    """Rule 7, P5; "never sent -> PLANNED forgets the earlier send": A's request acts, A dies, B is refused; cancel."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.act()
    first.lose_lease()
    played.pass_time(60)
    played.sweep()
    second = played.hand("B").claim().reserve()

    assert second.fail(NeverSent("connection refused")) is EffectState.UNKNOWN
    second.settle_failed()
    runs.cancel(played.run_id, by=None, reason="no")
    world.run_through()

    assert state_of(played.run_id) is RunState.CANCELLED
    assert played.row().state == EffectState.CONFIRMED
    assert len(played.provider.sends) == 1
    assert_sound(played.run_id, played.provider)


@pytest.mark.parametrize("error", [Permanent("already refunded"), Transient("429"), NeverSent("no route")])
def test_a_refusal_while_an_earlier_send_is_in_doubt_keeps_the_doubt(world: World, error: Exception):
    """Rule 7; design, section 5: "already refunded" may be our own first request."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.act()
    first.fail(UnknownOutcome("read timed out"))
    first.settle_doubtful()
    played.provider.faults = [_raise(error)]

    played.pass_time(60)
    world.run_until_idle()

    assert played.row().state == EffectState.UNKNOWN
    assert played.step().state == StepState.NEEDS_RECONCILIATION
    assert not played.run().ended_at
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(played.provider.acts) == 1
    assert_sound(played.run_id, played.provider)


def test_a_late_negative_from_a_fenced_worker_changes_nothing(world: World):
    """Rule 7; the trace "A cannot connect, slow; B sends; A writes PLANNED; B dies, acts; cancel confirmed"."""
    played = stage(world)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.pass_time(60)
    played.sweep()
    fresh = played.hand("B").claim().reserve()

    assert slow.fail(NeverSent("connection refused")) is EffectState.DISPATCHED

    fresh.act()
    fresh.lose_lease()
    assert played.row().state == EffectState.UNKNOWN
    runs.cancel(played.run_id, by=None, reason="no")
    world.run_through()
    assert played.row().state == EffectState.CONFIRMED
    assert_sound(played.run_id, played.provider)


@pytest.mark.parametrize("error", [NeverSent("refused"), Permanent("no"), Transient("429"), UnknownOutcome("?")])
def test_a_late_negative_does_not_clear_the_doubt_of_a_freed_row(world: World, error: Exception):
    """Rule 7: it counts only from the lease holder, even when nobody has sent since."""
    played = stage(world, keyed=False)
    slow = played.hand("A").claim().reserve().lose_lease()

    assert slow.fail(error) is EffectState.UNKNOWN

    assert slow.send.outcome != ""
    assert slow.send.error_text
    with pytest.raises(LeaseLost):
        slow.settle_failed()


def test_a_refusal_does_not_overwrite_the_receipt_that_a_slow_worker_brought(world: World):
    """Rules 7 and 8: B is told "already refunded" because of A's request, whose receipt has come meanwhile."""
    played = stage(world)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.pass_time(60)
    late = []

    def refuse(provider: Provider, call: object, amount: int) -> PayReceipt:
        late.append(slow.record(slow.act()))
        raise Permanent("already refunded")

    # B's request comes first in the list, A's is the one that acts.
    played.provider.faults = [refuse]
    world.run_until_idle()
    world.run_through()

    assert late == [EffectState.CONFIRMED]
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert played.run().data["receipt_id"] == "pay_1"
    assert len(played.provider.acts) == 1
    assert_sound(played.run_id, played.provider)


# Rule 8


def test_a_late_receipt_is_recorded_and_the_step_goes_on_with_it(world: World):
    """S3.26: Rule 8, P2; "fenced worker's receipt kept": only A knows that money moved."""
    played = stage(world, keyed=False, lookup=False)
    slow = played.hand("A").claim().reserve().lose_lease()

    assert slow.record(slow.act()) is EffectState.CONFIRMED

    assert played.run().alert == ""
    assert played.row().receipt == {"id": "pay_1", "status": "done"}
    with pytest.raises(LeaseLost):
        slow.settle()
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(played.provider.sends) == 1
    assert_sound(played.run_id, played.provider)


def test_a_late_receipt_for_an_absent_effect_is_recorded_with_an_alert(world: World):
    """Rule 8: the lookup said that it did not happen, and it did."""
    played = stage(world, keyed=False)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.pass_time()
    played.look()
    assert played.row().state == EffectState.ABSENT

    assert slow.record(slow.act()) is EffectState.CONFIRMED

    assert "it did happen" in played.run().alert
    assert played.row().contradiction == "a receipt came for an effect that was ABSENT: it did happen"
    assert len(played.events("effect.alert")) == 1
    assert_sound(played.run_id, played.provider)


def test_a_late_receipt_for_a_planned_effect_is_recorded_with_an_alert(world: World):
    """Rule 8: PLANNED says that every send is known unsent, and one of them was not."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    answer = first.act()
    first.fail(NeverSent("it believes so"))
    first.settle_failed()

    assert first.record(answer) is EffectState.CONFIRMED

    assert "PLANNED" in played.row().contradiction
    assert played.run().alert
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(played.provider.acts) == 1


def test_a_receipt_after_the_run_ended_is_recorded_with_an_alert_and_the_end_stays(world: World):
    """Rule 8: a verdict of a person let the run end; the provider's own word comes after it."""
    played = stage(world, keyed=False)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.pass_time()
    played.look()
    assert played.row().state == EffectState.ABSENT
    runs.cancel(played.run_id, by=None, reason="no")
    world.run_until_idle()
    assert state_of(played.run_id) is RunState.CANCELLED

    assert slow.record(slow.act()) is EffectState.CONFIRMED

    assert state_of(played.run_id) is RunState.CANCELLED
    assert played.run().alert
    assert_sound(played.run_id, played.provider)


def test_a_second_receipt_from_a_provider_without_keys_is_an_alert(world: World):
    """Rule 8, section 6: flight longer than the settle time; the provider has acted twice, and somebody is told."""
    played = stage(world, keyed=False, resend_when_absent=True)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.pass_time()
    played.look()
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED

    slow.record(slow.act())

    assert len(played.provider.acts) == 2
    assert "it did happen" in played.run().alert


def test_another_receipt_for_the_same_row_is_kept_on_its_send_and_alerts(world: World):
    """Rule 8: the first receipt stands, the second is never lost."""
    played = stage(world)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.pass_time(60)
    played.sweep()
    fresh = played.hand("B").claim().reserve()
    fresh.record(fresh.act())

    slow.record(Answer(AnswerKind.RECEIPT, receipt={"id": "pay_2", "status": "done"}))

    assert played.row().receipt == {"id": "pay_1", "status": "done"}
    assert slow.send.answer == {"id": "pay_2", "status": "done"}
    assert "acted twice" in played.run().alert


def test_the_same_receipt_again_is_no_surprise(world: World):
    """Rule 8: a provider with keys answers both sends with one receipt."""
    played = stage(world)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.pass_time(60)
    played.sweep()
    fresh = played.hand("B").claim().reserve()
    fresh.record(fresh.act())

    slow.record(slow.act())

    assert played.run().alert == ""
    assert len(played.provider.acts) == 1


def test_doubt_never_overwrites_a_receipt(world: World):
    """Rule 8: B's answer is lost after A's receipt came."""
    played = stage(world)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.pass_time(60)
    played.sweep()
    fresh = played.hand("B").claim().reserve()
    slow.record(slow.act())

    assert fresh.fail(UnknownOutcome("read timed out")) is EffectState.CONFIRMED
    fresh.lose_lease()

    assert played.row().state == EffectState.CONFIRMED
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(played.provider.acts) == 1


def test_a_late_pending_answer_of_a_fenced_worker_is_not_thrown_away(world: World):
    """Rule 8, P2: "accepted" is the provider's word that the request came through."""
    played = stage(world, keyed=False, lookup=False)
    played.provider.faults = [answer_pending]
    slow = played.hand("A").claim().reserve().lose_lease()
    receipt = slow.act().receipt

    state = slow.record(Answer(AnswerKind.ACCEPTED, receipt=receipt))

    assert state is EffectState.ACCEPTED
    assert played.row().receipt == {"id": "pay_1", "status": "pending"}
    world.run_through()
    assert played.step().needs_person
    assert "accepted" in played.run().alert
    row = played.row()
    api.resolve_effect(row.pk, "happened", reason="seen", row_version=row.row_version, receipt={"id": "pay_1"})
    assert len(played.provider.sends) == 1


def test_an_answer_that_is_written_twice_counts_once(world: World):
    """Rule 8: the connection broke after the commit, and the worker writes it again."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    answer = first.act()

    first.record(answer)
    first.record(answer)

    assert played.row().state == EffectState.CONFIRMED
    assert played.run().alert == ""


def test_the_settle_time_outlasts_the_answer_of_a_fenced_worker(world: World):
    """Rule 3: a row may be CONFIRMED with a send still open."""
    played = stage(world)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.pass_time(5)
    slow.record(slow.act())

    row = played.row()
    assert row.settles_at is not None
    assert (row.settles_at - world.clock.now()).total_seconds() == SETTLE - 5


def _raise(error: Exception):
    def fault(provider: Provider, call: object, amount: int) -> PayReceipt:
        raise error

    return fault
