"""A workflow that writes in the engine's own database, and can take that back: a person is hired, and let go."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from pydantic import BaseModel

from durableflows import EffectCall, Retry, Run, StepReturn, Workflow, WorkflowState, effect, step, succeed


class Hired(BaseModel, frozen=True):
    """The receipt."""

    pk: int


class Hire(WorkflowState):
    """What the run remembers."""

    name: str = "ada"
    pk: int = 0


@dataclass
class Office:
    """What happens while the function runs, after it has written, and how it ends."""

    during: list[Callable[[], object]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    end: StepReturn = field(default_factory=succeed)

    def staff(self) -> list[str]:
        return sorted(get_user_model().objects.filter(username__in=["ada", "bob"]).values_list("username", flat=True))


def hire_workflow(office: Office, **options: Any) -> type[Workflow[Hire]]:
    """hire -> tell. For `registry.isolated()`."""

    @effect(name="staff.dismiss", provider="staff", receipt=Hired, transactional=True)
    def dismiss(call: EffectCall, *, receipt: Hired) -> Hired:
        office.calls.append("dismiss")
        get_user_model().objects.filter(pk=receipt.pk).delete()
        return receipt

    @effect(name="staff.hire", provider="staff", receipt=Hired, transactional=True, undo=dismiss, **options)
    def hire_person(call: EffectCall, *, name: str) -> Hired:
        office.calls.append(call.key)
        person = get_user_model().objects.create_user(name)
        if office.during:
            office.during.pop(0)()
        return Hired(pk=person.pk)

    class HireSomebody(Workflow[Hire]):
        """Hire somebody."""

        name, deadline = "hire", timedelta(days=3)

        @step(start=True, to="tell", effects=(hire_person,), retry=Retry(attempts=3, base_seconds=60))
        def hire(self, run: Run[Hire]) -> None:
            run.state.pk = run.effect(hire_person, name=run.state.name).pk

        @step(end=True)
        def tell(self, run: Run[Hire]) -> StepReturn:
            return office.end

    return HireSomebody
