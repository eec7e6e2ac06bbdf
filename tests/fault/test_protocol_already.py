"""An answer like "already refunded" is neither believed nor taken for a failure: whose refund it was is looked up."""

import pytest

from durableflows import AlreadyDone, UnknownOutcome, api
from durableflows.core.outcomes import AnswerKind
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.ledger import Unsettled
from durableflows.testing import World
from tests.support.flows import act_then_raise, raise_without_acting
from tests.support.play import Hand, Stage, assert_sound, stage, state_of

pytestmark = pytest.mark.django_db(transaction=True)

ALREADY = AlreadyDone("charge ch_1 has already been refunded")


def test_already_done_is_looked_up_and_not_sent_again(world: World):
    """P5, R13: it was ours; the provider knows our key, and is not asked for the action again."""
    played = stage(world)
    played.provider.faults = [act_then_raise(ALREADY)]

    world.run_through()

    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(played.provider.sends) == len(played.provider.acts) == 1
    assert played.provider.lookups
    assert played.row().sends.get(kind="send").outcome == str(AnswerKind.ALREADY)
    assert_sound(played.run_id, played.provider)


def test_already_done_after_a_lost_answer_is_looked_up(world: World):
    """P5: "already refunded" is mostly our own first request."""
    played = stage(world)
    played.provider.faults = [act_then_raise(UnknownOutcome("read timed out")), raise_without_acting(ALREADY)]

    world.run_through()

    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(played.provider.sends) == 2
    assert len(played.provider.acts) == 1
    assert played.provider.lookups
    assert_sound(played.run_id, played.provider)


def test_already_done_without_a_lookup_is_a_person_s(world: World):
    """P5: nobody can be asked, and the same key would only bring the same answer."""
    played = stage(world, lookup=False)
    played.provider.faults = [raise_without_acting(ALREADY)]

    world.run_through()

    assert played.row().state == EffectState.UNKNOWN
    assert played.step().needs_person
    assert len(played.provider.sends) == 1
    assert_sound(played.run_id, played.provider)


@pytest.mark.parametrize("resend_when_absent", [False, True])
def test_already_done_that_a_lookup_does_not_find_is_a_person_s(world: World, resend_when_absent: bool):
    """P5: somebody else did it; another key would do it twice."""
    played = stage(world, resend_when_absent=resend_when_absent)
    played.provider.faults = [raise_without_acting(ALREADY)]

    world.run_through()

    assert played.row().state == EffectState.ABSENT
    assert played.step().needs_person
    assert "already done" in played.run().alert
    assert len(played.provider.sends) == 1
    assert_sound(played.run_id, played.provider)


def test_a_person_may_let_it_be_done_under_a_new_key(world: World):
    """P5: the verdict is the decision."""
    played = stage(world)
    played.provider.faults = [raise_without_acting(ALREADY)]
    world.run_through()
    row = played.row()

    api.resolve_effect(row.pk, "did_not_happen", reason="it was another order's", row_version=row.row_version)
    world.run_through()

    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(set(played.provider.sends)) == 2
    assert_sound(played.run_id, played.provider)


def _late_word(world: World) -> tuple[Stage, Hand]:
    """A's lease was lost, its answer comes when the step is ready for a second send."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.lose_lease()
    played.pass_time(60)
    played.sweep()
    assert played.step().state == StepState.READY
    return played, first


def test_the_word_of_a_late_answer_counts_where_dispatched_is_written(world: World):
    """P5, rule 9: as the key window, it is judged in the transaction that would write the send."""
    played, first = _late_word(world)
    second = played.hand("B").claim()
    first.fail(ALREADY)

    reservation = second.ask()

    assert isinstance(reservation, Unsettled)
    assert played.row().send_count == 1


def test_the_word_of_a_late_answer_counts_when_the_step_is_claimed(world: World):
    """P5, rule 6: the body is not even started."""
    played, first = _late_word(world)
    first.fail(ALREADY)

    assert not played.hand("B").may_claim()

    assert played.step().state == StepState.NEEDS_RECONCILIATION
    world.run_through()
    assert played.row().send_count == 1
