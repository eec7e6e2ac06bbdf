"""Rule 8 and P10: a receipt that comes after everybody gave it up is used, not only kept."""

from datetime import timedelta

import pytest

from durableflows import CannotTell, NeverSent
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.errors import LeaseLost
from durableflows.notes import note
from durableflows.testing import World, effect_states
from tests.support.play import assert_sound, stage, state_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_receipt_that_comes_when_a_person_is_asked_lets_the_run_go_on(world: World):
    """Nobody can be asked but a person; then the worker that was taken for dead brings the receipt."""
    played = stage(world, keyed=False, lookup=False)
    slow = played.hand("A").claim().reserve()
    answer = slow.act()
    slow.lose_lease()
    played.pass_time(31)
    played.sweep()
    assert (played.step().state, played.step().needs_person) == (StepState.NEEDS_RECONCILIATION, True)

    slow.record(answer)

    assert played.step().needs_person is False
    assert played.run().alert == ""
    world.run_until_idle()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(played.provider.acts) == 1
    assert_sound(played.run_id, played.provider)


def test_what_happened_after_all_is_not_done_again_under_the_next_key(world: World):
    """A lookup said "absent", the next issue was refused before it left, and then the first one's receipt came."""
    played = stage(world, keyed=False, lookup=True, resend_when_absent=True)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.pass_time(31)
    played.look()
    played.pass_time(60)
    fresh = played.hand("B").claim().reserve()
    fresh.fail(NeverSent("refused"))
    fresh.settle_failed()
    assert effect_states(played.run_id) == [("test.pay", EffectState.ABSENT), ("test.pay", EffectState.PLANNED)]

    slow.record(slow.act())
    world.run_through(until=world.clock.now() + timedelta(hours=2))

    assert len(played.provider.acts) == 1
    assert effect_states(played.run_id) == [("test.pay", EffectState.CONFIRMED), ("test.pay", EffectState.PLANNED)]
    assert state_of(played.run_id) is RunState.SUCCEEDED


def test_a_worker_that_lost_its_lease_writes_no_note(world: World):
    """P2: it can no longer write the run, and its history neither."""
    played = stage(world)
    slow = played.hand("A").claim().lose_lease()
    assert slow.claimed is not None

    with pytest.raises(LeaseLost):
        note(slow.claimed.lease, "I am still here")

    assert played.events("run.note") == []


def test_a_lookup_s_words_are_stored_masked_whatever_they_are(world: World):
    """P14: a lookup tells what the provider said, and the provider may say anything."""
    played = stage(world, keyed=False, lookup=True)
    played.provider.lookup_answers = [CannotTell("down\x00 token=abcdef12")]
    played.hand("A").claim().reserve().lose_lease()
    played.pass_time(31)
    played.look()

    assert played.row().reason == "down⟦U+0000⟧ token=[redacted]"
