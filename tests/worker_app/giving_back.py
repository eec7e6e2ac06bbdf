"""A run that holds something, fails, and gives it back: books in files, so that no kill can spoil them."""

from datetime import timedelta
from pathlib import Path

from durableflows import EffectCall, Permanent, Run, Workflow, WorkflowState, effect, step
from tests.support.books import Books


class LoanState(WorkflowState):
    """Where the books are; what is held."""

    folder: str
    loan: str = ""


def _act(call: EffectCall, folder: str, what: str) -> str:
    books = Books(Path(folder), "shelf")
    books.write(what, "sent", call.key)
    return books.act_once(what, call.key)


@effect(name="shelf.take", provider="shelf", receipt=str, key_window=timedelta(hours=24))
def take(call: EffectCall, *, folder: str) -> str:
    """Taken once a key."""
    return _act(call, folder, "taken")


@effect(name="shelf.give", provider="shelf", receipt=str, key_window=timedelta(hours=24))
def give(call: EffectCall, *, folder: str) -> str:
    """Given back once a key."""
    return _act(call, folder, "given")


class Loan(Workflow[LoanState]):
    """take -> read, which fails; then give_back."""

    name, version = "loan", 1
    deadline = timedelta(days=1)
    on_failure = "give_back"

    @step(start=True, to="read", effects=(take,))
    def take(self, run: Run[LoanState]) -> None:
        run.state.loan = run.effect(take, folder=run.state.folder)

    @step(end=True)
    def read(self, run: Run[LoanState]) -> None:
        raise Permanent("a page is missing")

    @step(end=True, effects=(give,))
    def give_back(self, run: Run[LoanState]) -> None:
        order = Path(run.state.folder) / "order"
        if order.exists():  # once: from here on, whoever comes by the boundary that it names dies
            Path(order.read_text()).touch()
            order.unlink()
        run.effect(give, folder=run.state.folder)
