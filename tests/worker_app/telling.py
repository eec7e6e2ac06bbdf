"""A run that asks a person, and a notifier that leaves a line in a file for each notice that it gives."""

import os
from datetime import timedelta
from pathlib import Path

from durableflows import Facts, Run, Workflow, WorkflowState, approval, step
from durableflows.notifiers import Notice


class AskState(WorkflowState):
    """Nothing to remember."""

    why: str = "a test"


def show(run: Run[AskState]) -> Facts:
    """What is decided on."""
    return Facts(binding={"why": run.state.why})


class Asking(Workflow[AskState]):
    """ask (reminds after an hour) -> end."""

    name, version = "asking", 1
    deadline = timedelta(days=1)

    ask = approval(
        start=True,
        title="Agree to {why}",
        shows=show,
        permission="durableflows.answer_approval",
        approved="finish",
        rejected="finish",
        remind=(timedelta(hours=1),),
    )

    @step(end=True)
    def finish(self, run: Run[AskState]) -> None:
        run.note("decided")


class Lines:
    """Writes who is told of what, under which id, into the file that TEST_TOLD names."""

    def notify(self, notice: Notice) -> None:
        with Path(os.environ["TEST_TOLD"]).open("a") as lines:
            lines.write(f"{notice.person.get_username()} {notice.kind} {notice.id}\n")
