"""What `durableflows.testing` offers beside `faulttest`: steps by hand, flaky gateways, receipts, pytest fixtures."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from durableflows import EffectCall, InvalidState, Money, NeverSent, NotFoundError, UnknownOutcome, api, effect
from durableflows.core import registry
from durableflows.testing import FakeClock, FlakyGateway, run_step, run_until_idle, virtual
from durableflows.testing.receipts import Receipts
from tests.contract.source import ROOT
from tests.support.flows import Provider, pay_workflow

PLUGIN_TEST = """
from durableflows import api
from durableflows.core import registry
from durableflows.testing import Crash
from tests.support.flows import Provider, pay_workflow

def test_world_and_crash(durable_world, durable_crash):
    with registry.isolated():
        run = api.start(pay_workflow(Provider()), {"amount": 5})
        assert [name for name, _ in durable_world.messages] == ["pay.assess"]
        try:
            with durable_crash("settle: before commit"):
                durable_world.run_until_idle()
        except Crash:
            durable_world.run_through()
    run.refresh_from_db()
    assert run.state == "SUCCEEDED"
"""


@pytest.mark.django_db
def test_a_step_is_run_by_hand_inside_a_world_and_outside():
    provider = Provider()
    with registry.isolated():
        with virtual(FakeClock(datetime.now(UTC))):
            run = api.start(pay_workflow(provider), {"amount": 5})
            assert run_step(run).state == "SUCCEEDED"
            assert run_step(run, "pay").name == "pay"
        run_until_idle()

        run.refresh_from_db()
        with pytest.raises(NotFoundError, match="is READY and due now"):
            run_step(run.pk)

    assert run.state == "SUCCEEDED"
    assert len(provider.acts) == 1


def test_a_flaky_gateway_follows_its_script():
    gateway = FlakyGateway(lambda amount: f"paid {amount}", ["answer-lost", "refused", ValueError("odd"), "answers"])

    for error in (UnknownOutcome, NeverSent, ValueError):
        with pytest.raises(error):
            gateway(amount=5)

    assert [gateway(amount=6), gateway(amount=7)] == ["paid 6", "paid 7"]
    assert [named["amount"] for _, named in gateway.acts] == [5, 6, 7]
    assert gateway.is_used_up
    assert len(gateway.calls) == 5


def test_a_word_that_a_gateway_cannot_play_is_refused():
    with pytest.raises(InvalidState, match="'pending' cannot stand in a gateway's script"):
        FlakyGateway(lambda: None, ["pending"])


class Colour(StrEnum):
    RED = "red"


class Rich(BaseModel):
    id: str
    charge_id: str
    amount: Money
    colour: Colour
    kind: Literal["full", "part"]
    note: str | None
    count: int
    parts: list[str]
    extra: str = "default"


CALL: Any = None


def test_a_receipt_is_made_up_from_its_type():
    @effect(name="rich.pay", provider="bank", receipt=Rich, key_window=timedelta(hours=1))
    def pay(call: EffectCall, *, charge_id: str, amount: Money) -> Rich:
        raise AssertionError("nothing leaves")

    made = Receipts().plain(pay, CALL, {"charge_id": "ch_1", "amount": Money(5, "USD")})

    assert made == Rich(
        id="bank-1",
        charge_id="ch_1",
        amount=Money(5, "USD"),
        colour=Colour.RED,
        kind="full",
        note=None,
        count=1,
        parts=[],
    )


def test_a_receipt_that_cannot_be_made_up_says_what_to_write():
    @effect(name="picky.pay", provider="bank", receipt=Rich, accepted=lambda receipt: True)
    def pay(call: EffectCall, *, charge_id: str, amount: Money) -> Rich:
        raise AssertionError("nothing leaves")

    with pytest.raises(InvalidState, match=r'receipts=\{"picky.pay": lambda call'):
        Receipts().plain(pay, CALL, {})


def test_pytest_finds_the_fixtures(tmp_path: Path):
    (tmp_path / "test_it.py").write_text(PLUGIN_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "durableflows.pytest_plugin", "-c", "pyproject.toml"]

    done = subprocess.run(
        [*command, "--rootdir", str(ROOT), "-p", "no:cacheprovider", str(tmp_path / "test_it.py")],
        cwd=ROOT,
        env={
            "PATH": "",
            "DATABASE_URL": "sqlite://:memory:",
            "CELERY_BROKER_URL": "memory://",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_plugin_is_declared():
    import tomllib

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]

    assert declared == {"durableflows": "durableflows.pytest_plugin"}
