"""A run that is ending asks nobody any more: its questions close in the commit in which the end begins."""

from datetime import timedelta

import pytest

from durableflows import Escalate, Facts, Run, StepRef, TooLate, UnknownOutcome, Workflow, api, approval, step
from durableflows.core.states import ApprovalState, EndingReason, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World
from tests.support.flows import PayState, Provider, act_then_raise, pay_effect

pytestmark = pytest.mark.django_db(transaction=True)


def fork(*, when_asked=lambda: None) -> WorkflowRun:
    """`pay` is in doubt and waits for a person; beside it `sign_off` asks. `when_asked` runs while it does."""
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("?"))])
    pay_it = pay_effect(provider, key_window=None, with_lookup=False)

    def shown(run: Run[PayState]) -> Facts:
        when_asked()
        return Facts(binding={"amount": run.state.amount}, context={})

    class Fork(Workflow[PayState]):
        """Two at once."""

        name, version = "fork", 1
        deadline = timedelta(days=2)

        @step(start=True, to=("pay", "sign_off"))
        def begin(self, run: Run[PayState]) -> tuple[StepRef, ...]:
            return self.pay, self.sign_off

        @step(end=True, effects=(pay_it,))
        def pay(self, run: Run[PayState]) -> None:
            run.effect(pay_it, amount=5)

        sign_off = approval(
            title="Pay {amount}",
            shows=shown,
            permission="durableflows.answer_approval",
            approved="after",
            rejected="after",
            expires=timedelta(hours=20),
            on_expiry=Escalate("durableflows.operate_run", then="deny"),
        )

        @step(end=True)
        def after(self, run: Run[PayState]) -> None:
            pass

    return api.start(Fork, {"amount": 5})


def kinds(run: WorkflowRun) -> set[str]:
    return set(RunEvent.objects.filter(run=run).values_list("kind", flat=True))


def nothing_is_broken() -> bool:
    return not [found for found in examine() if found.severity is Severity.BROKEN]


@pytest.mark.parametrize("why", [EndingReason.CANCEL, EndingReason.DEADLINE])
def test_questions_of_an_ending_run_are_closed_at_once_and_never_escalate(why: str, world: World, django_user_model):
    run = fork()
    world.run_until_idle()
    assert StepRun.objects.get(run=run, name="pay").state == StepState.NEEDS_RECONCILIATION
    if why == EndingReason.CANCEL:
        api.cancel(run.pk, reason="no")
    else:
        ApprovalRequest.objects.update(expires_at=run.deadline_at + timedelta(hours=1))
        world.clock.move_to(run.deadline_at)
        sweeps.sweep(may_free_stale=False)

    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.ENDING
    asked = ApprovalRequest.objects.get()
    assert (asked.state, asked.ladder_position) == (ApprovalState.CLOSED, 0)
    assert "ending" in asked.closed_reason
    boss = django_user_model.objects.create_superuser("boss")
    with pytest.raises(TooLate, match="ending"):
        api.answer(asked.pk, "approve", by=boss, facts_digest=asked.facts_digest)

    world.clock.advance(days=4)
    sweeps.sweep(may_free_stale=False)

    assert ApprovalRequest.objects.get().state == ApprovalState.CLOSED
    assert kinds(run).isdisjoint({"approval.escalated", "approval.answered"})
    assert nothing_is_broken()


def test_a_question_that_comes_while_the_run_ends_is_not_asked(world: World):
    """The approval's facts are being computed when the cancel comes; the other branch keeps the run open."""
    run = fork(when_asked=lambda: api.cancel(WorkflowRun.objects.get().pk, reason="no"))
    world.run_until_idle()

    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.ENDING
    assert not ApprovalRequest.objects.filter(state=ApprovalState.OPEN).exists()
    assert nothing_is_broken()

    world.clock.advance(minutes=5)
    row = SideEffect.objects.get()
    api.resolve_effect(row.pk, "did_not_happen", reason="seen", row_version=row.row_version)
    world.run_through()
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.CANCELLED
    assert nothing_is_broken()
