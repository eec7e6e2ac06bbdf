"""An errand with an effect, a timer and an approval, for workers with any pool; it says who did it, and by which
connection of the database.
"""

import os
import threading
import time
from datetime import timedelta
from pathlib import Path

from django.db import connection

from durableflows import EffectCall, Facts, Run, StepReturn, Workflow, WorkflowState, approval, effect, sleep, step
from tests.support.books import Books

HOLD_SECONDS = 9.0


class ErrandState(WorkflowState):
    """Where the books are; what was bought."""

    folder: str
    ticket: str = ""


def backend() -> int:
    """The server's process behind this thread's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def mark(folder: Path, name: str) -> None:
    """Write down which process and thread was here, and by which connection."""
    with (folder / name).open("a") as marks:
        marks.write(f"{os.getpid()} {threading.get_ident()} {backend()}\n")


@effect(
    name="tickets.buy",
    provider="tickets",
    receipt=str,
    key_window=timedelta(hours=24),
    settle_seconds=16.0,
    timeout_seconds=10.0,
)
def buy_ticket(call: EffectCall, *, folder: str) -> str:
    """Bought once a key. While the file `hold` is there, the answer waits for the file `go`."""
    books = Books(Path(folder), "tickets")
    books.write("ticket", "sent", call.key)
    bought = books.act_once("ticket", call.key)
    stop_at = time.monotonic() + HOLD_SECONDS
    while (Path(folder) / "hold").exists() and not (Path(folder) / "go").exists() and time.monotonic() < stop_at:
        time.sleep(0.02)  # stands for a slow provider; the test waits on the books
    return bought


def shows(run: Run[ErrandState]) -> Facts:
    """What is asked about."""
    return Facts(binding={"ticket": run.state.ticket})


class Errand(Workflow[ErrandState]):
    """buy -> rest a second -> sign_off -> done."""

    name, version = "errand", 1
    deadline = timedelta(days=1)

    @step(start=True, to="rest", effects=(buy_ticket,))
    def buy(self, run: Run[ErrandState]) -> None:
        mark(Path(run.state.folder), "buys")
        run.state.ticket = run.effect(buy_ticket, folder=run.state.folder)

    @step(to="ask")
    def rest(self, run: Run[ErrandState]) -> StepReturn:
        return sleep(timedelta(seconds=1), then=self.ask)

    @step(to="sign_off")
    def ask(self, run: Run[ErrandState]) -> None: ...

    sign_off = approval(
        title="Use {ticket}",
        shows=shows,
        permission="durableflows.answer_approval",
        approved="done",
        rejected="done",
        expires=timedelta(hours=1),
    )

    @step(end=True)
    def done(self, run: Run[ErrandState]) -> None:
        mark(Path(run.state.folder), "dones")
