"""Protocol rules 3, 4, 5 and 13: when a provider is asked, which answers are used, and what people may say."""

import pytest

from durableflows import Found, InvalidState, NotFound, TooLate, UnknownOutcome, api, lookups
from durableflows.core.outcomes import Answer, AnswerKind
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.lookups import Heard, Ticket
from durableflows.models import EffectSend, SideEffect
from durableflows.services import reconcile
from durableflows.testing import World
from tests.support.flows import PayReceipt, Provider, act_then_raise
from tests.support.play import SETTLE, Stage, assert_sound, stage, state_of

pytestmark = pytest.mark.django_db(transaction=True)

NOT_FOUND = Heard("not found")


def begin(played: Stage) -> Ticket | None:
    """Ask, and keep the answer for later."""
    row = played.row()
    return lookups.begin(row.run_id, row.step_id, row.pk, played.effect)


def ask(played: Stage) -> tuple[Ticket, Heard]:
    ticket = begin(played)
    assert ticket is not None
    return ticket, lookups.ask(played.effect, ticket)


# Rules 3 and 4


def test_a_lookup_is_asked_only_after_the_settle_time(world: World):
    """Rules 3 and 4, P5; the trace "A sends; freed; asked: absent; acts; settle time passes; answer used; B sends"."""
    played = stage(world, keyed=False, resend_when_absent=True)
    slow = played.hand("A").claim().reserve().lose_lease()

    played.look()
    played.pass_time(SETTLE - 0.001)
    played.look()
    assert begin(played) is None
    assert played.provider.lookups == []
    receipt = slow.act()  # it lands in the last moment
    played.pass_time(0.001)
    played.look()

    assert len(played.provider.lookups) == 1
    assert played.row().state == EffectState.CONFIRMED
    slow.record(receipt)
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(played.provider.acts) == 1
    assert_sound(played.run_id, played.provider)


def test_the_settle_time_counts_from_the_last_send(world: World):
    """Rules 2 and 3: a second send under the same key opens the question again."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.fail(UnknownOutcome("?"))
    first.settle_doubtful()
    played.pass_time(20)
    played.sweep()
    second = played.hand("B").claim().reserve()
    second.fail(UnknownOutcome("?"))
    second.settle_doubtful()

    played.pass_time(SETTLE - 1)

    assert begin(played) is None


def test_absent_is_used_after_the_settle_time_and_the_row_says_so(world: World):
    """Rule 4, P5 (b): it did not happen, the effect declares that it may be sent again, under a new key."""
    played = stage(world, keyed=False, resend_when_absent=True)
    played.hand("A").claim().reserve().lose_lease()

    world.run_through()

    assert state_of(played.run_id) is RunState.SUCCEEDED
    first, second = SideEffect.objects.filter(run_id=played.run_id).order_by("issue")
    assert (first.state, second.state) == (EffectState.ABSENT, EffectState.CONFIRMED)
    assert second.replaces == first
    assert first.key != second.key
    assert played.provider.acts == [second.key]
    assert_sound(played.run_id, played.provider)


def test_absent_is_not_sent_again_unless_the_effect_declares_it(world: World):
    """P5 (b), R14: a person decides, and is told."""
    played = stage(world, keyed=False)
    played.hand("A").claim().reserve().lose_lease()

    world.run_through()

    assert played.row().state == EffectState.ABSENT
    assert played.step().needs_person
    assert "did not happen" in played.run().alert
    assert played.provider.sends == []
    assert_sound(played.run_id, played.provider)


def test_a_stale_absent_is_not_used(world: World):
    """Rule 4; "asked: absent, slow; person: did not happen; B sends, acts; old answer used: ABSENT; freed; C sends"."""
    played = stage(world, keyed=False)
    played.hand("A").claim().reserve().lose_lease()
    played.pass_time()
    ticket, absent = ask(played)
    assert absent == NOT_FOUND
    row = played.row()
    api.resolve_effect(row.pk, "did_not_happen", reason="I looked", row_version=row.row_version)
    second = played.hand("B").claim().reserve()
    second.act()
    second.lose_lease()

    lookups.end(ticket, absent)

    assert played.row().state == EffectState.UNKNOWN
    assert len(played.events("lookup.stale")) == 1
    assert played.step().state == StepState.NEEDS_RECONCILIATION
    world.run_through()
    assert len(played.provider.acts) == 1
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert_sound(played.run_id, played.provider)


def test_a_stale_absent_is_not_used_for_the_same_row_that_was_sent_again(world: World):
    """Rule 4: the answer belongs to the version of the row that it was asked about."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.fail(UnknownOutcome("?"))
    first.settle_doubtful()
    played.pass_time()
    ticket, absent = ask(played)
    played.sweep()
    second = played.hand("B").claim().reserve()
    second.act()
    second.fail(UnknownOutcome("?"))
    second.settle_doubtful()

    lookups.end(ticket, absent)

    assert played.row().state == EffectState.UNKNOWN
    assert len(played.events("lookup.stale")) == 1


def test_a_stale_found_is_used(world: World):
    """Rule 4: "found" by an exact key is true whatever happened since."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.act()
    first.fail(UnknownOutcome("?"))
    first.settle_doubtful()
    played.pass_time()
    ticket, found = ask(played)
    played.sweep()
    second = played.hand("B").claim().reserve()

    assert lookups.end(ticket, found) is EffectState.CONFIRMED

    assert played.run().alert == ""
    assert second.record(second.act()) is EffectState.CONFIRMED
    second.settle()
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(played.provider.acts) == 1
    assert_sound(played.run_id, played.provider)


def test_two_lookups_at_a_time_are_one(world: World):
    """Rule 4: the second message finds the lookup's lease taken."""
    played = stage(world, keyed=False)
    played.hand("A").claim().reserve().lose_lease()
    played.pass_time()

    assert begin(played) is not None
    assert begin(played) is None
    played.pass_time(60)
    assert begin(played) is not None
    assert EffectSend.objects.filter(kind="lookup").count() == 2


def test_lookups_that_cannot_tell_end_at_a_person_who_may_ask_again(world: World):
    """P10: ten answers of "cannot tell" are enough; no loop, no guess."""
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("?"))])
    provider.lookup_answers = [RuntimeError("search is down")] * 10
    played = stage(world, keyed=False, provider=provider)

    world.run_through()

    assert played.row().state == EffectState.UNKNOWN
    assert played.step().needs_person
    assert played.run().alert
    assert len(provider.lookups) == 10
    row = played.row()
    api.resolve_effect(row.pk, "ask_again", reason="it is back", row_version=row.row_version)
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(provider.acts) == 1
    assert_sound(played.run_id, provider)


def test_found_for_a_row_that_is_not_done_yet_is_accepted_only(world: World):
    """P5: pending is not done."""
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("?"))])
    played = stage(world, keyed=False, provider=provider)
    provider.lookup_answers = [Found(PayReceipt(id="pay_1", status="pending"))]

    world.run_until_idle()
    played.pass_time()
    played.look()

    assert played.row().state == EffectState.ACCEPTED
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(provider.acts) == 1
    assert_sound(played.run_id, provider)


# Rule 5


def in_doubt(world: World) -> Stage:
    """A's request is out, nobody knows; the settle time has not passed."""
    played = stage(world, keyed=False, lookup=False)
    played.hand("A").claim().reserve().lose_lease()
    played.sweep()
    return played


def test_a_verdict_is_bound_to_the_version_that_was_shown(world: World):
    """S3.50: Rule 5: the row has moved on since the page was loaded."""
    played = in_doubt(world)
    played.pass_time()
    shown = played.row().row_version
    api.resolve_effect(played.row().pk, "did_not_happen", reason="I looked", row_version=shown)
    played.hand("B").claim().reserve().lose_lease()
    played.pass_time()

    with pytest.raises(TooLate):
        api.resolve_effect(played.row().pk, "did_not_happen", reason="again", row_version=shown + 100)
    first = SideEffect.objects.get(run_id=played.run_id, issue=1)
    with pytest.raises(TooLate):
        api.resolve_effect(first.pk, "happened", reason="old page", row_version=shown, receipt={"id": "x"})

    assert played.row().state == EffectState.UNKNOWN


def test_it_did_not_happen_is_refused_while_a_send_is_open(world: World):
    """Rule 5; the trace "A writes DISPATCHED; freed; person: no; A sends"."""
    played = in_doubt(world)
    row = played.row()

    with pytest.raises(TooLate, match="may still arrive"):
        api.resolve_effect(row.pk, "did_not_happen", reason="I looked", row_version=row.row_version)

    assert played.row().state == EffectState.UNKNOWN
    played.pass_time()
    row = played.row()
    api.resolve_effect(row.pk, "did_not_happen", reason="I looked again", row_version=row.row_version)
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(played.provider.acts) == 1
    assert_sound(played.run_id, played.provider)


def test_it_happened_needs_a_receipt_and_may_be_said_at_once(world: World):
    """Rule 5."""
    played = in_doubt(world)
    row = played.row()

    with pytest.raises(InvalidState):
        api.resolve_effect(row.pk, "happened", reason="seen", row_version=row.row_version)
    with pytest.raises(InvalidState):
        api.resolve_effect(row.pk, "happened", reason=" ", row_version=row.row_version, receipt={"id": "pay_9"})
    api.resolve_effect(row.pk, "happened", reason="seen", row_version=row.row_version, receipt={"id": "pay_9"})
    world.run_through()

    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert played.run().data["receipt_id"] == "pay_9"
    assert played.provider.sends == []
    assert [event.data["verdict"] for event in played.events("effect.resolved")] == ["happened"]


def test_a_row_that_is_dispatched_has_no_verdict(world: World):
    """Rule 5: a worker holds it, and will say."""
    played = stage(world)
    played.hand("A").claim().reserve()
    row = played.row()

    for verdict in reconcile.VERDICTS:
        with pytest.raises(TooLate):
            api.resolve_effect(row.pk, verdict, reason="x", row_version=row.row_version, receipt={"id": "x"})


def test_what_the_provider_accepted_cannot_be_said_not_to_have_happened(world: World):
    """Rule 5, P5: only the provider takes its word back."""
    played = stage(world, keyed=False, lookup=False)
    slow = played.hand("A").claim().reserve()
    slow.act()
    played.provider.known.clear()
    slow.record(Answer(AnswerKind.ACCEPTED, receipt={"id": "pay_1", "status": "pending"}))
    slow.settle()
    played.pass_time(3600)
    row = played.row()

    with pytest.raises(TooLate):
        api.resolve_effect(row.pk, "did_not_happen", reason="x", row_version=row.row_version)


# Rule 13


def test_absent_is_looked_up_once_more_after_a_day_though_the_run_has_ended(world: World):
    """Rule 13; the trace "A sends, dies; ABSENT; acts; cancelled: nobody ever looks again"."""
    played = stage(world, keyed=False)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.pass_time()
    played.look()
    assert played.row().state == EffectState.ABSENT
    api.cancel(played.run_id, reason="no")
    world.run_until_idle()
    slow.act()

    played.pass_time(86400)
    played.look()

    assert state_of(played.run_id) is RunState.CANCELLED
    assert played.row().state == EffectState.CONFIRMED
    assert "it did happen" in played.run().alert
    assert_sound(played.run_id, played.provider)


def test_absent_that_stays_absent_is_audited_once(world: World):
    """Rule 13."""
    played = stage(world, keyed=False)
    played.hand("A").claim().reserve().lose_lease()
    played.pass_time()
    played.look()

    for _ in range(3):
        played.pass_time(86400)
        played.look()

    assert len(played.provider.lookups) == 2
    assert played.row().state == EffectState.ABSENT
    assert len(played.events("effect.audited")) == 1


def test_a_row_sent_again_after_absent_is_audited_and_found_twice_is_an_alert(world: World):
    """Rule 13: the first key's request acted after all."""
    played = stage(world, keyed=False, resend_when_absent=True)
    slow = played.hand("A").claim().reserve().lose_lease()
    played.pass_time()
    played.look()
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    slow.act()

    played.pass_time(86400)
    played.look()

    assert len(played.provider.acts) == 2
    assert "it did happen" in played.run().alert


def test_an_audit_that_finds_the_effect_pending_is_an_alert_once_and_goes_on(world: World):
    """Rule 13: it was sent again under another key, and may yet happen twice."""
    provider = Provider(keyed=False)
    played = stage(world, keyed=False, provider=provider, resend_when_absent=True)
    played.hand("A").claim().reserve().lose_lease()
    played.pass_time()
    played.look()
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    pending = Found(PayReceipt(id="pay_9", status="pending"))
    provider.lookup_answers = [pending, pending, Found(PayReceipt(id="pay_9"))]

    for wait in (86400, 3600):
        played.pass_time(wait)
        played.look()
        assert "it may happen yet" in played.run().alert
        assert len(played.events("effect.alert")) == 1
    played.pass_time(3600)
    played.look()

    assert "it did happen" in played.run().alert
    assert SideEffect.objects.get(run=played.run_id, issue=1).state == EffectState.CONFIRMED


def test_an_audit_that_cannot_tell_is_asked_again_later(world: World):
    """Rule 13: the run's end does not remove it."""
    played = stage(world, keyed=False)
    played.hand("A").claim().reserve().lose_lease()
    played.pass_time()
    played.look()
    played.provider.lookup_answers = [RuntimeError("down"), NotFound()]

    played.pass_time(86400)
    played.look()
    assert played.row().audit_at is not None
    played.pass_time(3600)
    played.look()

    assert played.row().audit_at is None
    assert len(played.provider.lookups) == 3
