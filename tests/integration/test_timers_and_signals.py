"""Runs that wait for time or for a message from outside: never too early, never lost, each message used once (R21)."""

from datetime import UTC, datetime, timedelta

import pytest

from durableflows import (
    InvalidState,
    KeyConflict,
    NotAllowed,
    NotFoundError,
    Run,
    StepReturn,
    TooLate,
    Workflow,
    WorkflowState,
    api,
    sleep,
    step,
    succeed,
    wait_for,
)
from durableflows.core.states import RunState, StepState
from durableflows.models import Signal, WorkflowRun
from durableflows.testing import World
from tests.support.look import fresh, how_often, state_of, steps_of

pytestmark = pytest.mark.django_db(transaction=True)


class Log(WorkflowState):
    until: datetime | None = None
    timeout_seconds: int = 0
    wanted: int = 1
    seen: list[str] = []


def sleeper() -> type[Workflow[Log]]:
    class Sleeper(Workflow[Log]):
        name, deadline = "sleeper", timedelta(days=30)

        @step(start=True, to="wake")
        def rest(self, run: Run[Log]) -> StepReturn:
            return sleep(run.state.until or timedelta(days=2), then=self.wake)

        @step(end=True)
        def wake(self, run: Run[Log]) -> None:
            run.state.seen = [*run.state.seen, "awake"]

    return Sleeper


def listener() -> type[Workflow[Log]]:
    """Waits for `wanted` signals, one after the other."""

    class Listener(Workflow[Log]):
        name, deadline = "listener", timedelta(days=30)

        @step(start=True, to=("heard", "late"))
        def listen(self, run: Run[Log]) -> StepReturn:
            if not run.state.timeout_seconds:
                return wait_for("paid", then=self.heard)
            timeout = timedelta(seconds=run.state.timeout_seconds)
            return wait_for("paid", then=self.heard, timeout=timeout, on_timeout=self.late)

        @step(to="listen", end=True)
        def heard(self, run: Run[Log]) -> StepReturn:
            assert run.signal is not None
            run.state.seen = [*run.state.seen, f"{run.signal.sender_name or 'code'}: {run.signal.payload}"]
            return self.listen if len(run.state.seen) < run.state.wanted else succeed()

        @step(end=True)
        def late(self, run: Run[Log]) -> None:
            assert run.signal is None
            run.state.seen = [*run.state.seen, "nobody paid"]

    return Listener


def test_a_sleeping_run_goes_on_when_its_time_has_come(world: World):
    run = api.start(sleeper(), {})
    world.run_until_idle()
    assert state_of(run) is RunState.WAITING

    world.clock.advance(days=2, seconds=-1)
    world.run_until_idle()
    assert state_of(run) is RunState.WAITING

    world.clock.advance(seconds=1)
    world.run_until_idle()
    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).data["seen"] == ["awake"]


def test_a_moment_in_the_past_is_due_at_once(world: World):
    run = api.start(sleeper(), {"until": datetime(2020, 1, 1, tzinfo=UTC)})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED


def test_a_sleep_beyond_the_deadline_ends_at_the_deadline(world: World):
    run = api.start(sleeper(), {"until": world.clock.now() + timedelta(days=31)})
    world.run_through(until=world.clock.now() + timedelta(days=30))
    world.clock.advance(days=30, seconds=1)
    world.run_until_idle()

    assert state_of(run) is RunState.DEADLINE_EXCEEDED
    assert how_often(run, "wake") == 1
    assert ("wake", "", StepState.CANCELLED) in steps_of(run)


def test_a_sleeping_run_can_be_cancelled(world: World):
    run = api.start(sleeper(), {})
    world.run_until_idle()

    api.cancel(run.pk, reason="not needed")
    world.clock.advance(days=3)
    world.run_until_idle()

    assert state_of(run) is RunState.CANCELLED
    assert fresh(run).data["seen"] == []


def test_a_signal_wakes_the_step_that_waits_for_it(world: World):
    run = api.start(listener(), {})
    world.run_until_idle()
    assert state_of(run) is RunState.WAITING

    api.signal(run.pk, "paid", {"amount": 5})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).data["seen"] == ["code: {'amount': 5}"]


def test_an_early_signal_is_kept(world: World):
    """R21: it came before the run waited for it."""
    run = api.start(listener(), {})
    api.signal(run.pk, "paid", 7)
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).data["seen"] == ["code: 7"]


def test_a_signal_of_another_name_wakes_nobody(world: World):
    run = api.start(listener(), {})
    world.run_until_idle()

    api.signal(run.pk, "packed")
    world.run_until_idle()

    assert state_of(run) is RunState.WAITING
    assert Signal.objects.filter(run=run, used_by__isnull=True).count() == 1


def test_each_signal_is_used_once_and_in_order(world: World):
    run = api.start(listener(), {"wanted": 3})
    for number in (1, 2):
        api.signal(run.pk, "paid", number)
    world.run_until_idle()
    assert state_of(run) is RunState.WAITING

    api.signal(run.pk, "paid", 3)
    world.run_until_idle()

    assert fresh(run).data["seen"] == ["code: 1", "code: 2", "code: 3"]


def test_a_repeated_signal_is_dropped_by_its_key(world: World):
    """R20: a webhook that comes twice."""
    run = api.start(listener(), {"wanted": 2})
    world.run_until_idle()

    first = api.signal(run.pk, "paid", 1, dedup_key="evt_1")
    second = api.signal(run.pk, "paid", 1, dedup_key="evt_1")
    world.run_until_idle()

    assert first.pk == second.pk
    assert state_of(run) is RunState.WAITING
    assert fresh(run).data["seen"] == ["code: 1"]


def test_a_known_key_with_another_payload_is_loud(world: World):
    run = api.start(listener(), {})
    api.signal(run.pk, "paid", 1, dedup_key="evt_1")

    with pytest.raises(KeyConflict, match="evt_1"):
        api.signal(run.pk, "paid", 2, dedup_key="evt_1")


def test_a_repeat_after_the_end_is_still_quiet(world: World):
    run = api.start(listener(), {})
    api.signal(run.pk, "paid", 1, dedup_key="evt_1")
    world.run_until_idle()

    assert api.signal(run.pk, "paid", 1, dedup_key="evt_1").used_by_id is not None
    with pytest.raises(TooLate, match="takes no signals"):
        api.signal(run.pk, "paid", 2)


def test_a_signal_that_does_not_come_in_time_leads_elsewhere(world: World):
    run = api.start(listener(), {"timeout_seconds": 3600})
    world.run_until_idle()
    world.clock.advance(hours=1)
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).data["seen"] == ["nobody paid"]
    assert ("heard", "", StepState.CANCELLED) in steps_of(run)


def test_a_signal_that_comes_before_the_sweep_of_its_timeout_counts(world: World):
    run = api.start(listener(), {"timeout_seconds": 3600})
    world.run_until_idle()
    world.clock.advance(hours=2)

    api.signal(run.pk, "paid", 1)
    world.run_until_idle()

    assert fresh(run).data["seen"] == ["code: 1"]


def test_a_body_that_runs_again_sees_the_same_signal(world: World):
    """The signal belongs to the step, not to the attempt."""
    from durableflows import Transient

    tries: list[object] = []

    class Twice(Workflow[Log]):
        name, deadline = "twice", timedelta(days=1)

        @step(start=True, to="heard")
        def listen(self, run: Run[Log]) -> StepReturn:
            return wait_for("paid", then=self.heard)

        @step(end=True)
        def heard(self, run: Run[Log]) -> None:
            assert run.signal is not None
            tries.append(run.signal.payload)
            if len(tries) == 1:
                raise Transient("again")

    run = api.start(Twice, {})
    api.signal(run.pk, "paid", "once")
    world.run_through()

    assert tries == ["once", "once"]
    assert state_of(run) is RunState.SUCCEEDED


def test_only_the_owner_and_operators_may_signal(world: World, django_user_model):
    owner = django_user_model.objects.create_user("owner")
    stranger = django_user_model.objects.create_user("stranger")
    viewer = django_user_model.objects.create_user("viewer")
    from django.contrib.auth.models import Permission

    viewer.user_permissions.add(Permission.objects.get(codename="view_workflowrun"))
    run = api.start(listener(), {}, by=owner)

    with pytest.raises(NotFoundError):
        api.signal(run.pk, "paid", by=stranger)
    with pytest.raises(NotAllowed, match="may not signal"):
        api.signal(run.pk, "paid", by=viewer)
    api.signal(run.pk, "paid", 1, by=owner)
    world.run_until_idle()

    assert fresh(run).data["seen"] == ["owner: 1"]


@pytest.mark.parametrize(("name", "payload"), [("", 1), ("x" * 101, 1), ("paid", object()), ("paid", float("nan"))])
def test_a_signal_that_cannot_be_stored_is_refused(world: World, name: str, payload: object):
    run = api.start(listener(), {})

    with pytest.raises(InvalidState):
        api.signal(run.pk, name, payload)

    assert not Signal.objects.exists()


def test_a_parked_run_keeps_its_timer_and_its_signals(world: World):
    run = api.start(listener(), {"timeout_seconds": 60})
    world.run_until_idle()
    WorkflowRun.objects.filter(pk=run.pk).update(parked_reason="needs a person")
    world.clock.advance(hours=1)
    api.signal(run.pk, "paid", 1)
    world.run_until_idle()
    assert fresh(run).data["seen"] == []

    api.retry(run.pk, reason="looked at")
    world.run_until_idle()

    assert fresh(run).data["seen"] == ["code: 1"]
