"""A run that takes something outside, enters it in our own database, and then has both undone: books in files."""

from datetime import timedelta
from pathlib import Path

from django.contrib.auth import get_user_model

from durableflows import EffectCall, Run, StepReturn, Workflow, WorkflowState, compensate, effect, step
from tests.support.books import Books


class HireState(WorkflowState):
    """Where the books are; who is hired."""

    folder: str
    name: str


def _act(call: EffectCall, folder: str, what: str) -> str:
    books = Books(Path(folder), "agency")
    books.write(what, "sent", call.key)
    return books.act_once(what, call.key)


@effect(name="agency.dismiss", provider="agency", receipt=str, key_window=timedelta(hours=24))
def dismiss_it(call: EffectCall, *, folder: str, receipt: str) -> str:
    """Given back once a key."""
    assert receipt
    return _act(call, folder, "dismissed")


@effect(name="agency.hire", provider="agency", receipt=str, key_window=timedelta(hours=24), undo=dismiss_it)
def hire_it(call: EffectCall, *, folder: str) -> str:
    """Taken once a key."""
    return _act(call, folder, "hired")


@effect(name="staff.strike", provider="staff", receipt=int, transactional=True)
def strike_it(call: EffectCall, *, receipt: int) -> int:
    """Delete the row."""
    return int(get_user_model().objects.filter(pk=receipt).delete()[0])


@effect(name="staff.enter", provider="staff", receipt=int, transactional=True, undo=strike_it)
def enter_it(call: EffectCall, *, name: str) -> int:
    """Write a row of ours: a second one of this name cannot be."""
    return int(get_user_model().objects.create_user(name).pk)


class HireAndDismiss(Workflow[HireState]):
    """hire -> enter -> decide, which has all undone."""

    name, version = "hire_and_dismiss", 1
    deadline = timedelta(days=1)

    @step(start=True, to="enter", effects=(hire_it,))
    def hire(self, run: Run[HireState]) -> None:
        run.effect(hire_it, folder=run.state.folder)

    @step(to="decide", effects=(enter_it,))
    def enter(self, run: Run[HireState]) -> None:
        run.effect(enter_it, name=run.state.name)

    @step(end=True)
    def decide(self, run: Run[HireState]) -> StepReturn:
        order = Path(run.state.folder) / "order"
        if order.exists():  # once: from here on, whoever comes by the boundary that it names dies
            Path(order.read_text()).touch()
            order.unlink()
        return compensate("a mistake")
