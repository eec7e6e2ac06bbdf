"""What providers tell on their own: kept once, whenever it comes, and settled only by what fits (R17, R20, R21)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from durableflows import EffectCall, InvalidState, Run, TooLate, UnknownOutcome, Workflow, api, effect, step
from durableflows.core import registry
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.doctor import examine
from durableflows.models import ProviderEvent, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.services import provider_events
from durableflows.testing import Boundary, Crash, World, crash_at
from tests.support.flows import (
    Fault,
    PayReceipt,
    PayState,
    Provider,
    act_then_raise,
    answer_pending,
    pay_effect,
    pay_workflow,
    read_event,
    told,
)
from tests.support.told import assert_whole, effect_of, now_of, pass_time, start, tell

pytestmark = pytest.mark.django_db(transaction=True)
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = AT + timedelta(seconds=5)


@pytest.fixture
def pending(world: World) -> WorkflowRun:
    """A run whose payment the provider has accepted."""
    run = start(Provider(faults=[answer_pending]))
    world.run_until_idle()
    assert effect_of(run).state == EffectState.ACCEPTED
    return run


def test_an_accepted_effect_is_settled_by_an_event_and_the_run_goes_on(world: World, pending: WorkflowRun):
    """R17 (a): while it is pending nothing later is done; then it completes, without a question to the provider."""
    assert not RunEvent.objects.filter(run=pending, kind="run.note").exists()

    event = tell("evt_1", told("done", key=effect_of(pending).key))
    world.run_until_idle()

    row = effect_of(pending)
    assert (event.verdict, event.effect_id) == ("settled", row.pk)
    assert (row.state, row.receipt, row.contradiction) == (EffectState.CONFIRMED, {"id": "pay_1", "status": "done"}, "")
    assert now_of(pending).state == RunState.SUCCEEDED
    assert_whole(pending.pk)


def test_an_accepted_effect_that_fails_later_takes_the_failure_path_and_a_person_is_told(
    world: World, pending: WorkflowRun
):
    """R17 (b)."""
    tell("evt_1", told("failed", key=effect_of(pending).key))
    world.run_until_idle()

    run, row = now_of(pending), effect_of(pending)
    assert (run.state, row.state) == (RunState.FAILED, EffectState.REJECTED)
    assert "has failed: the bank said no" in run.alert
    assert "the bank said no" in StepRun.objects.get(run=run, name="pay").error_text
    assert row.contradiction == "", "it contradicts nothing: accepted was not done"
    assert_whole(run.pk)


def test_what_stays_accepted_for_too_long_becomes_a_person_s(world: World, pending: WorkflowRun):
    """R17 (c): no lookup, no event; `accepted_within` escalates, and nobody is bothered before."""
    pass_time(world, timedelta(days=1, hours=23))
    assert (StepRun.objects.get(run=pending, name="pay").needs_person, now_of(pending).alert) == (False, "")

    pass_time(world, timedelta(hours=2))

    assert StepRun.objects.get(run=pending, name="pay").needs_person
    assert "accepted and is not done after 2 days" in now_of(pending).alert
    tell("evt_late", told("done", key=effect_of(pending).key))
    world.run_until_idle()
    assert (now_of(pending).state, now_of(pending).alert) == (RunState.SUCCEEDED, "")


def test_what_fails_a_week_after_the_end_is_reversed_and_a_person_is_told(world: World):
    """R17 (d): the run's end does not change, and the event is not dropped because it has ended."""
    run = start(Provider())
    world.run_until_idle()
    ended = now_of(run)
    assert ended.state == RunState.SUCCEEDED
    pass_time(world, timedelta(days=7))

    event = tell("evt_1", told("failed", key=effect_of(run).key, at=world.clock.now()))

    after, row = now_of(run), effect_of(run)
    assert (event.verdict, row.state) == ("reversed", EffectState.REVERSED)
    assert (after.state, after.ended_at) == (ended.state, ended.ended_at)
    assert "taken it back: the bank said no" in after.alert
    assert row.receipt == {"id": "pay_1", "status": "done"}, "what had happened stays on the record"
    assert [finding.code for finding in examine(run.pk)] == ["contradiction"]
    said = [line.text for line in api.explain(run.pk).lines]
    assert any("taken it back: the bank said no" in text for text in said), said
    assert_whole(run.pk)


def test_a_run_that_rests_on_what_was_reversed_stops_before_it_goes_on(world: World):
    """R17: what follows a payment must not be done when it was taken back meanwhile."""
    run = start(Provider())
    while not SideEffect.objects.filter(run=run, state=EffectState.CONFIRMED).exists():
        world.deliver(*world.messages.popleft())

    tell("evt_1", told("failed", key=effect_of(run).key))
    world.run_until_idle()

    parked = now_of(run)
    assert (parked.state, effect_of(run).state) == (RunState.PARKED, EffectState.REVERSED)
    assert not RunEvent.objects.filter(run=run, kind="run.note").exists()
    assert "taken it back" in parked.parked_detail
    api.retry(run.pk, reason="paid by hand")
    world.run_until_idle()
    assert now_of(run).state == RunState.SUCCEEDED


def test_a_paused_run_that_rests_on_what_was_reversed_does_not_go_on_by_a_resume(world: World):
    """Who resumes it tomorrow knows why it was paused, and not what the provider has told since."""
    run = start(Provider())
    while not SideEffect.objects.filter(run=run, state=EffectState.CONFIRMED).exists():
        world.deliver(*world.messages.popleft())
    api.pause(run.pk, reason="maintenance")

    tell("evt_1", told("failed", key=effect_of(run).key))

    parked = now_of(run)
    assert (parked.state, parked.parked_reason) == (RunState.PARKED, "needs a person")
    assert "taken it back" in parked.parked_detail
    assert "Before that: paused, by the system: maintenance" in parked.parked_detail
    with pytest.raises(TooLate, match="cure that, then retry it"):
        api.resume(run.pk, reason="maintenance is over")
    api.retry(run.pk, reason="paid by hand")
    world.run_until_idle()
    assert now_of(run).state == RunState.SUCCEEDED


@pytest.mark.parametrize(
    ("wrong", "what"), [({"amount": 6}, "amount"), ({"ref": "pay_9"}, "pay_9")], ids=["amount", "another act"]
)
@pytest.mark.parametrize("status", ["pending", "done", "failed"])
def test_an_event_that_does_not_fit_settles_nothing_and_is_loud(
    world: World, pending: WorkflowRun, wrong: dict[str, Any], what: str, status: str
):
    """P5: a contradiction is never ignored."""
    event = tell("evt_1", told(status, key=effect_of(pending).key, **wrong))
    world.run_until_idle()

    row, run = effect_of(pending), now_of(pending)
    assert (event.verdict, row.state, run.state) == ("contradiction", EffectState.ACCEPTED, RunState.WAITING)
    assert what in row.contradiction
    assert what in run.alert
    assert "contradiction" in [finding.code for finding in examine(run.pk)]
    tell("evt_2", told("done", key=row.key))
    world.run_until_idle()
    assert now_of(pending).state == RunState.SUCCEEDED
    assert effect_of(pending).contradiction, "the right event does not unsay the wrong one"


def test_copies_are_one_event_and_one_transition(world: World, pending: WorkflowRun):
    """R20: one transition, the event's id stored once."""
    body = told("done", key=effect_of(pending).key)
    verdicts = {tell("evt_1", body).verdict for _ in range(10)}
    world.run_until_idle()

    assert verdicts == {"settled"}
    assert ProviderEvent.objects.get().copies == 10
    recorded = RunEvent.objects.filter(run=pending, kind="effect.recorded")
    assert [line.data["state"] for line in recorded] == ["ACCEPTED", "CONFIRMED"]
    assert_whole(pending.pk)


def test_older_events_that_come_late_never_put_back_what_is_known(world: World, pending: WorkflowRun):
    """R20: 'succeeded' before 'created'; 'pending' after 'succeeded'; 'succeeded' after 'failed'."""
    key = effect_of(pending).key
    verdicts = [
        tell("evt_3", told("done", key=key, at=LATER)).verdict,
        tell("evt_1", told("pending", key=key, at=AT)).verdict,
        tell("evt_2", told("pending", key=key, at=LATER + timedelta(seconds=9))).verdict,
        tell("evt_9", told("failed", key=key, at=LATER + timedelta(days=2))).verdict,
        tell("evt_4", told("done", key=key, at=LATER)).verdict,
    ]
    world.run_until_idle()

    assert verdicts == ["settled", "older", "older", "reversed", "older"]
    assert effect_of(pending).state == EffectState.REVERSED


def test_an_event_before_the_answer_is_recorded_counts_and_the_answer_does_not_undo_it(world: World):
    """R21: each of them while the request is under way; the answer that is recorded afterwards is the older news."""
    cases: list[tuple[str, list[Fault], EffectState, RunState]] = [
        ("done", [answer_pending], EffectState.CONFIRMED, RunState.SUCCEEDED),
        ("done", [], EffectState.CONFIRMED, RunState.SUCCEEDED),
        ("pending", [answer_pending], EffectState.ACCEPTED, RunState.WAITING),
        ("failed", [answer_pending], EffectState.REJECTED, RunState.FAILED),
        ("done", [act_then_raise(UnknownOutcome("read timed out"))], EffectState.CONFIRMED, RunState.SUCCEEDED),
    ]
    for status, answers, state, end in cases:
        with registry.isolated():
            provider = Provider(faults=answers)
            name = f"evt_{status}_{len(ProviderEvent.objects.all())}"

            def before(call: EffectCall, name: str = name, status: str = status) -> None:
                assert tell(name, told(status, key=call.key)).verdict == "settled"

            provider.before_call = before
            run = start(provider)
            pass_time(world, timedelta(minutes=1))

            row = effect_of(run)
            assert (row.state, now_of(run).state) == (state, end), (status, answers)
            assert (row.contradiction, len(provider.sends)) == ("", 1)
            assert_whole(run.pk)


def test_an_event_before_its_effect_is_kept_and_used_when_the_effect_is_there(world: World):
    """R21: no event is lost; here it names the act by the provider's own reference, which only the answer tells us."""
    provider = Provider(faults=[answer_pending])
    flow = pay_workflow(provider, pay_effect(provider, event=read_event, with_lookup=False))
    event = tell("evt_1", told("done", key="", ref="pay_1"))
    assert (event.verdict, event.effect_id) == ("unmatched", None)

    run = api.start(flow, {"amount": 5})
    world.run_until_idle()
    pass_time(world, timedelta(minutes=10))

    event.refresh_from_db()
    assert (event.verdict, event.effect_id) == ("settled", effect_of(run).pk)
    assert now_of(run).state == RunState.SUCCEEDED


def test_an_event_about_nothing_that_we_know_is_kept_shown_and_left_alone_after_a_day(
    world: World, pending: WorkflowRun
):
    """An effect of another provider with this key is none of its."""
    event = tell("evt_1", told("done", key="nobody's"))
    other = api.provider_event("mails", "evt_1", told("done", key=effect_of(pending).key))

    assert (event.verdict, event.judge_at is None) == ("unmatched", False)
    assert other.verdict == "unreadable", "no effect of that provider reads events"
    assert [finding.code for finding in examine()].count("event-unmatched") == 1
    pass_time(world, timedelta(days=2))
    event.refresh_from_db()
    assert (event.verdict, event.judge_at) == ("unmatched", None)
    assert event.tries < 20
    tell("evt_1", told("done", key="nobody's"))
    event.refresh_from_db()
    assert (event.verdict, event.copies, event.judge_at) == ("unmatched", 2, None), "looked at once more, in vain"
    assert effect_of(pending).state == EffectState.ACCEPTED


def test_an_event_speaks_for_its_own_provider_alone(world: World, pending: WorkflowRun):
    """A provider that is trusted less must not settle another one's payments, whatever key it names."""

    @effect(name="mail.send", provider="mails", receipt=PayReceipt, event=read_event)
    def send_mail(call: EffectCall, *, amount: int) -> PayReceipt:
        return PayReceipt(id="never sent")

    class Write(Workflow[PayState]):
        name, version, deadline = "write", 1, timedelta(days=1)

        @step(start=True, end=True, effects=(send_mail,))
        def write(self, run: Run[PayState]) -> None: ...

    event = api.provider_event("mails", "evt_1", told("done", key=effect_of(pending).key))

    assert event.verdict == "unmatched"
    assert effect_of(pending).state == EffectState.ACCEPTED


def test_an_event_that_nobody_judges_is_overdue(world: World, pending: WorkflowRun):
    """Whom it was told to dies after it was stored; no ticker is there."""
    with pytest.raises(Crash), crash_at(Boundary.PROVIDER_EVENT_AFTER_COMMIT):
        tell("evt_1", told("done", key=effect_of(pending).key))
    assert ProviderEvent.objects.get().verdict == ""
    world.clock.advance(minutes=1)

    assert "event-overdue" in [finding.code for finding in examine()]
    world.run_until_idle()
    assert "event-overdue" not in [finding.code for finding in examine()]
    assert ProviderEvent.objects.get().verdict == "settled"


def test_an_event_about_no_effect_is_kept_and_nobody_is_bothered(world: World, pending: WorkflowRun):
    event = tell("evt_1", {"type": "balance.available"})

    assert (event.verdict, event.judge_at) == ("about no effect", None)
    assert not [finding for finding in examine() if finding.code.startswith("event-")]


def test_an_event_that_the_reader_cannot_read_is_kept_told_and_read_when_it_comes_again(
    world: World, pending: WorkflowRun, caplog: pytest.LogCaptureFixture
):
    """An error in a project's reader loses nothing."""
    key = effect_of(pending).key
    broken = tell("evt_1", {**told("done", key=key), "status": "unheard of"})

    assert broken.verdict == "unreadable"
    assert "KeyError" in broken.reason
    assert "evt_1" in caplog.text
    assert [finding.code for finding in examine()].count("event-unreadable") == 1
    again = tell("evt_1", told("done", key=key))
    world.run_until_idle()
    assert (again.pk, again.verdict, again.copies) == (broken.pk, "settled", 2)
    assert now_of(pending).state == RunState.SUCCEEDED


def test_the_body_is_kept_masked_and_bounded(world: World, pending: WorkflowRun, settings: Any):
    """P14: no secret enters a row; the digest is of what came."""
    body = {**told("done", key=effect_of(pending).key), "client_secret": "pi_123_secret_456", "nul": "a\x00b"}
    event = tell("evt_1", body)

    assert (event.body["client_secret"], event.body["nul"]) == ("[redacted]", "a⟦U+0000⟧b")
    assert event.verdict == "settled"
    settings.DURABLEFLOWS = {"MAX_EVENT_BYTES": 500}
    with pytest.raises(InvalidState, match="500"):
        tell("evt_2", {**body, "much": "x" * 500})
    assert not ProviderEvent.objects.filter(event_id="evt_2").exists()


@pytest.mark.parametrize("given", [("", "evt_1", {}), ("test", "", {}), ("test", "e" * 201, {}), ("test", "e\x00", {})])
def test_what_cannot_be_kept_is_refused(world: World, given: tuple[str, str, dict[str, Any]]):
    with pytest.raises(InvalidState):
        api.provider_event(*given)
    with pytest.raises(InvalidState):
        api.provider_event("test", "evt_1", ["no", "mapping"])  # type: ignore[arg-type]
    with pytest.raises(InvalidState):
        api.provider_event("test", "evt_1", {}, happened_at=AT.replace(tzinfo=None))


def test_in_a_caller_s_transaction_it_is_judged_after_the_commit_and_a_rollback_leaves_nothing(
    world: World, pending: WorkflowRun
):
    """R20: with per-request transactions a duplicate breaks nothing."""
    body = told("done", key=effect_of(pending).key)
    with transaction.atomic():
        first, copy = tell("evt_1", body), tell("evt_1", body)
        assert (first.verdict, copy.verdict, first.pk) == ("", "", copy.pk)
        assert effect_of(pending).state == EffectState.ACCEPTED
    assert ProviderEvent.objects.get().verdict == "settled"

    with transaction.atomic():
        tell("evt_2", body)
        transaction.set_rollback(True)
    assert ProviderEvent.objects.count() == 1


def test_an_event_after_a_cancel_settles_what_the_cancel_waits_for(world: World, pending: WorkflowRun):
    """P15: an accepted effect keeps a run from ending; the event lets it end."""
    api.cancel(pending.pk, reason="the customer changed his mind")
    world.run_until_idle()
    assert now_of(pending).state == RunState.ENDING

    tell("evt_1", told("done", key=effect_of(pending).key))
    world.run_until_idle()
    pass_time(world, timedelta(minutes=2))

    assert (now_of(pending).state, effect_of(pending).state) == (RunState.CANCELLED, EffectState.CONFIRMED)
    assert_whole(pending.pk)


def test_the_story_tells_events_in_words(world: World, pending: WorkflowRun):
    key = effect_of(pending).key
    tell("evt_1", told("pending", key=key, at=AT))
    tell("evt_2", told("done", key=key, at=LATER))
    tell("evt_3", told("pending", key=key, at=AT))
    world.run_until_idle()

    said = [line.text for line in api.explain(pending.pk).lines]
    assert any("test.pay is confirmed by an event of test; test calls it pay_1" in text for text in said), said
    assert any("an event of test came late: later news of it is here already" in text for text in said), said
    assert StepRun.objects.get(run=pending, name="pay").state == StepState.SUCCEEDED


def test_old_events_that_are_about_no_effect_go_with_the_clean_up(world: World, pending: WorkflowRun):
    """Those of an effect go with its run, and those that are still to be matched stay."""
    tell("evt_1", {"type": "balance.available"})
    kept = tell("evt_2", told("pending", key=effect_of(pending).key))
    pass_time(world, timedelta(hours=25))
    fresh = tell("evt_3", {"type": "balance.available"})

    assert provider_events.forget(world.clock.now() - timedelta(days=1)) == 1
    assert set(ProviderEvent.objects.values_list("pk", flat=True)) == {kept.pk, fresh.pk}
