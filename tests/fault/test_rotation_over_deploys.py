"""A key is changed as the pages say, over deploys of real workers, while runs are under way and wait."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.test import override_settings

from durableflows import api
from durableflows.doctor import verify
from durableflows.models import StepAttempt, WorkflowRun
from durableflows.services import rotation
from tests.support.workers import Fleet, fleet, wait_for
from tests.worker_app.waits import Waits
from tests.worker_app.workflows import Held

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

FIRST = {"k1": "the old secret", "k2": "the new secret"}  # the new key is known everywhere, and seals nothing
SECOND = {"k2": "the new secret", "k1": "the old secret"}
LAST = {"k2": "the new secret"}
WAIT_SECONDS = 25.0


@contextmanager
def deployed(ships: Fleet, keys: dict[str, str]) -> Iterator[None]:
    """This process and the workers that start from now on have these keys."""
    ships.environment["TEST_STATE_KEYS"] = json.dumps(keys)
    with override_settings(DURABLEFLOWS={"STATE_KEYS": keys}):
        yield


def rotate_all() -> int:
    return sum(rotation.rotate(pk) for pk in list(rotation.due().values_list("pk", flat=True)))


def test_runs_go_on_while_the_key_is_changed_and_the_old_one_goes(tmp_path: Path):
    held, waits = tmp_path / "held", tmp_path / "waits"
    held.mkdir()
    waits.mkdir()
    with fleet(tmp_path) as ships:
        with deployed(ships, FIRST):
            old = ships.start()
            api.start(Held, {"folder": str(held)})
            for way in ("none", "timer", "timer", "retry"):
                api.start(Waits, {"folder": str(waits), "way": way, "seconds": WAIT_SECONDS})
            wait_for((held / "starts").exists, seconds=30, what="the step to be under way")
        with deployed(ships, SECOND):
            middle = ships.start()
            assert rotate_all() > 0
            (held / "go").touch()
            old.send_signal(signal.SIGTERM)
            wait_for(lambda: old.poll() is not None, seconds=60, what="the old worker to end")
            rotate_all()  # what it has sealed meanwhile
            assert set(rotation.keys_in_use()) == {"k2"}
            middle.send_signal(signal.SIGTERM)
            wait_for(lambda: middle.poll() is not None, seconds=60, what="the second worker to end")
        with deployed(ships, LAST):
            ships.start()
            goes_on = WorkflowRun.objects.filter(ended_at__isnull=True)
            wait_for(lambda: not goes_on.exists(), seconds=WAIT_SECONDS + 40, what="every run to end")

            assert verify().findings == ()
    assert set(WorkflowRun.objects.values_list("state", flat=True)) == {"SUCCEEDED"}
    assert not StepAttempt.objects.filter(outcome__in=["lost", "cancelled"]).exists()
