"""An audit that nobody can make any more ends, and a person is told (protocol, rule 13)."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import uuid4

import pytest

from durableflows import api, clock
from durableflows.core import registry
from durableflows.core.states import RunState
from durableflows.doctor import examine
from durableflows.models import Worker, WorkflowRun
from durableflows.testing import World
from tests.support.flows import Provider, pay_effect, pay_workflow
from tests.support.play import Stage, stage, state_of

pytestmark = pytest.mark.django_db(transaction=True)

DAY = 86_400


def absent(world: World) -> Stage:
    """A cancelled run whose effect was looked up and not found; its audit is due in a day."""
    played = stage(world, keyed=False)
    played.hand("A").claim().reserve().lose_lease()
    played.pass_time()
    played.look()
    api.cancel(played.run_id, reason="no")
    world.run_until_idle()
    assert state_of(played.run_id) is RunState.CANCELLED
    assert played.row().audit_at is not None
    return played


@contextmanager
def other_code(*, same_version: bool) -> Iterator[None]:
    """The next deploy: the old release is gone, or the same one has lost its lookup."""
    with registry.isolated():
        registry._DEFINITIONS.clear()
        if same_version:
            provider = Provider(keyed=False)
            pay_workflow(provider, pay_effect(provider, key_window=None, with_lookup=False))
        yield


def knowing(*knows: tuple[str, int]) -> Worker:
    now = clock.now()
    return Worker.objects.create(
        boot_id=uuid4(),
        name="w",
        host="h",
        pid=1,
        knows=[list(pair) for pair in knows],
        started_at=now - timedelta(days=1),
        heartbeat_at=now,
    )


@pytest.mark.parametrize("same_version", [False, True], ids=["release is gone", "lookup is gone"])
def test_an_audit_whose_code_is_gone_ends_with_an_alert_and_is_not_sent_again(same_version: bool, world: World):
    played = absent(world)
    with other_code(same_version=same_version):
        played.pass_time(DAY)
        played.sweep()
        assert played.row().audit_at is not None  # not at once: another worker may have the code
        played.pass_time(minutes=16)
        knowing(("another", 1))
        played.sweep()
        world.lose_messages()

        assert played.row().audit_at is None
        assert "cannot be looked up once more" in played.run().alert
        assert played.row().key in played.run().alert
        assert len(played.events("effect.alert")) == 1
        played.pass_time(DAY)
        played.sweep()
        assert not world.messages
        assert "audit-due" not in {found.code for found in examine()}


def test_an_audit_that_another_worker_can_make_waits_for_it(world: World):
    played = absent(world)
    with other_code(same_version=False):
        played.pass_time(DAY + 3600)
        knowing(("pay", 1))
        played.sweep()
        assert played.row().audit_at is not None
        world.lose_messages()

    played.pass_time(60)
    played.look()
    assert played.row().audit_at is None
    assert "cannot be looked up" not in played.run().alert


def test_while_nobody_can_say_what_workers_know_nothing_is_given_up(world: World):
    played = absent(world)
    with other_code(same_version=False):
        played.pass_time(DAY + 3600)
        played.sweep()

    assert played.row().audit_at is not None


def test_an_alert_that_is_there_stays(world: World):
    played = absent(world)
    WorkflowRun.objects.filter(pk=played.run_id).update(alert="test.pay: it did happen")
    with other_code(same_version=True):
        played.pass_time(DAY + 3600)
        played.sweep()

    assert played.run().alert.startswith("test.pay: it did happen; test.pay was found absent")
    assert played.row().audit_at is None
