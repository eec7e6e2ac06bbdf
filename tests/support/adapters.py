"""One table for all adapters: a fault, how far the send got, what the ledger says then and at the end, and the books.

The whole engine plays against real sockets; only its clock is moved. `play` lets one effect be asked for, once, and
goes on until nothing more happens by itself. What it returns is compared with a line of a table as a whole, so that a
line cannot leave anything out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from customer_ops.sandbox.control import BooksView
from durableflows import Retry, Run, Workflow, WorkflowState, api, step
from durableflows.core import registry
from durableflows.core.breaker import BreakerState
from durableflows.core.definition import EffectDefinition
from durableflows.models import Breaker, EffectSend, SideEffect, WorkflowRun
from durableflows.testing import World

QUICK_SECONDS, PATIENT_SECONDS = 0.6, 5.0
"""Real seconds: each silent provider costs a test the first; whoever answers has the second, on a busy machine too."""


class Nothing(WorkflowState):
    """A run that remembers nothing."""


@dataclass(frozen=True)
class Seen:
    """What one operation went through. `books`: how often the provider did it, by the provider's own books."""

    first: str
    then: str
    sends: int
    lookups: int
    end: str
    run: str
    books: int

    def __str__(self) -> str:
        words = f"{self.first} -> {self.then} ... {self.end}, run {self.run}"
        return f"{words}, {self.sends} sends, {self.lookups} lookups, {self.books} done"


def line(first: str, then: str, end: str, *, sends: int, lookups: int = 0, books: int) -> Seen:
    """A line of a table. How the run stands follows from the effect; refused credentials let it wait."""
    runs = {"CONFIRMED": "SUCCEEDED", "REJECTED": "FAILED", "PLANNED": "PARKED"}
    run = "RUNNING" if first == "CredentialsRefused" else runs.get(end, "NEEDS_RECONCILIATION")
    return Seen(first, then, sends, lookups, end, run, books)


Case = tuple[str, dict[str, Any], Seen]
"""A fault of the sandbox, its options, and what becomes of the operation that meets it once."""
LOST = "UnknownOutcome", "UNKNOWN", "CONFIRMED"
TOOK = "receipt", "CONFIRMED", "CONFIRMED"
NOT_FOUND = "UnknownOutcome", "UNKNOWN", "ABSENT"

DONE_AND_LOST: list[Case] = [
    (fault, options, line(*LOST, sends=2, books=1))
    for fault, options in (
        ("error_after", {"status": 502}),
        ("cut_after", {}),
        ("timeout_after", {}),
        ("half_answer", {}),
        ("html_answer", {}),
        ("bad_json", {}),
        ("trickle", {"seconds": 0.05}),
    )
]
"""Over HTTP, with a key: the operation is done, its answer is lost, and the same key brings it again."""


def declared(effect: EffectDefinition[Any], *, is_silent: bool, **options: Any) -> EffectDefinition[Any]:
    """The same effect, with a time-out that a test can wait for; `options` change more of its declaration."""
    return replace(effect, timeout_seconds=QUICK_SECONDS if is_silent else PATIENT_SECONDS, **options)


def play(
    world: World,
    used: EffectDefinition[Any],
    arguments: Mapping[str, Any],
    *,
    books: Callable[[str], int],
    between: Callable[[], object] = lambda: None,
) -> Seen:
    """Ask for an effect, let all go on by itself to the end, and say what was seen.

    books: how often the provider did what this key names; between: what happens after the first try
    """
    with registry.isolated():
        run = api.start(_workflow(used, arguments), {})
        world.run_until_idle()
        first, then = _first_send(run), _row(run).state
        between()
        if not Breaker.objects.filter(provider=used.provider, state=BreakerState.PAUSED).exists():
            world.run_through()  # else it waits for a person, and looks from time to time
    rows = list(SideEffect.objects.filter(run=run))
    sends = EffectSend.objects.filter(effect__run=run)
    return Seen(
        first=first,
        then=str(then),
        sends=sends.filter(kind="send").count(),
        lookups=sends.filter(kind="lookup").count(),
        end=str(rows[-1].state),
        run=str(WorkflowRun.objects.get(pk=run.pk).state),
        books=sum(books(row.key) for row in rows),
    )


def paid(books: BooksView, key: str) -> int:
    """How often the money of an operation is gone: refunds made, without those that were returned."""
    acts = [act["kind"] for act in books.acts if act["metadata"].get("durableflows_key") == key]
    return acts.count("refund") - acts.count("refund_returned")


def _workflow(used: EffectDefinition[Any], arguments: Mapping[str, Any]) -> type[Workflow[Nothing]]:
    class Once(Workflow[Nothing]):
        name, version, deadline = "once", 1, timedelta(days=14)

        @step(start=True, end=True, effects=(used,), retry=Retry(attempts=4, base_seconds=2, cap_seconds=300))
        def act(self, run: Run[Nothing]) -> None:
            run.effect(used, **arguments)

    return Once


def _first_send(run: WorkflowRun) -> str:
    """How the first send was judged: the class that it raised, or "receipt"."""
    send = EffectSend.objects.filter(effect__run=run, kind="send").earliest("started_at")
    return send.error_class.rpartition(".")[2] or "receipt"


def _row(run: WorkflowRun) -> SideEffect:
    return SideEffect.objects.get(run=run)
