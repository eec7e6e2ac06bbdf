"""What must be the same in every process, and what importing the package must not load."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys
import durableflows
from datetime import timedelta
from durableflows.core.keys import idempotency_key
from durableflows.core.payload import sha256

class State(durableflows.WorkflowState):
    names: frozenset[str] | dict[str, int] | None = None

class Refund(durableflows.Workflow[State]):
    name, deadline = "refund", timedelta(1)

    @durableflows.step(start=True, to=("b", "c"))
    def a(self, run): ...

    @durableflows.step(end=True)
    def b(self, run): ...

    @durableflows.step(end=True)
    def c(self, run): ...

first, second = (("x", 1), ("y", 2)) if sys.argv[1] == "1" else (("y", 2), ("x", 1))
print(json.dumps({
    "key": idempotency_key("01912345-6789-7abc-8def-0123456789ab", "pay", 1, "", "payments.refund", 1),
    "digest": sha256(dict([first, second])),
    "structure": Refund.definition.structure,
    "hash": hash("x"),
    "loaded": [name for name in sys.modules if name.split(".")[0] in ("django", "celery", "redis", "customer_ops")],
}))
"""


@pytest.fixture(scope="module")
def answers() -> list[dict[str, object]]:
    """Two processes at once, with other hash seeds and another order of fields."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, seed],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            stdout=subprocess.PIPE,
        )
        for seed in ("1", "2")
    ]
    return [json.loads(process.communicate(timeout=60)[0]) for process in processes]


@pytest.mark.parametrize("what", ["key", "digest", "structure"])
def test_two_processes_agree(answers: list[dict[str, object]], what: str) -> None:
    """R16: computed in two processes with different hash seeds and field order."""
    one, other = answers

    assert one["hash"] != other["hash"]
    assert one[what] == other[what]


def test_importing_the_package_loads_no_django(answers: list[dict[str, object]]) -> None:
    """Declaring a workflow needs neither Django nor Celery."""
    assert [answer["loaded"] for answer in answers] == [[], []]
