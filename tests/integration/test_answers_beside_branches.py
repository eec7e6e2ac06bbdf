"""An answer whose facts were looked at while another branch of the run went on: it is about what the run knows then."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from durableflows import Facts, FactsChanged, Run, StepReturn, Workflow, WorkflowState, api, approval, step
from durableflows.models import ApprovalDecision, ApprovalRequest, StepRun
from durableflows.runner import run_step
from durableflows.testing import World

pytestmark = pytest.mark.django_db(transaction=True)

MEANWHILE: list[Callable[[], Any]] = []
"""What happens once, after the facts were computed and before the answer is locked."""


class Side(WorkflowState):
    amount: int = 5


def facts(run: Run[Side]) -> Facts:
    shown = Facts(binding={"amount": run.state.amount})
    while MEANWHILE:
        MEANWHILE.pop()()
    return shown


def paired() -> type[Workflow[Side]]:
    """begin -> sign_off beside count; count changes what the request is about."""
    asked = approval(
        title="Pay",
        shows=facts,
        permission="auth.change_group",
        expires=timedelta(hours=9),
        approved="end",
        rejected="end",
    )

    class Paired(Workflow[Side]):
        name, deadline = "paired", timedelta(days=1)

        @step(start=True, to=("sign_off", "count"))
        def begin(self, run: Run[Side]) -> StepReturn:
            return self.sign_off, self.count

        sign_off = asked

        @step(to="end")
        def count(self, run: Run[Side]) -> None:
            run.state.amount = 7

        @step(join=True, end=True)
        def end(self, run: Run[Side]) -> None: ...

    return Paired


def test_facts_of_a_checkpoint_that_is_no_more_decide_nothing(world: World, admin_user: Any):
    """P9: they come from the project's code, before the lock; under it the run must still be where they came from."""
    run = api.start(paired(), {})
    world.deliver(*world.messages.popleft())
    steps = {row.name: row.pk for row in StepRun.objects.filter(run=run)}
    assert run_step(run.pk, steps["sign_off"])
    request = ApprovalRequest.objects.get(run=run)
    MEANWHILE.append(lambda: run_step(run.pk, steps["count"]))

    with pytest.raises(FactsChanged):
        api.answer(request.pk, "approve", by=admin_user, facts_digest=request.facts_digest)

    request.refresh_from_db()
    assert (request.state, request.binding) == ("OPEN", {"amount": 7})
    assert not ApprovalDecision.objects.exists()
