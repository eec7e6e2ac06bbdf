"""The people of a simulation: who is asked and answers, who sends signals, who cancels. They do what the schedule says.

Each comes by the public doors, may die there, and then does it again.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from durableflows import api
from durableflows.core.states import ApprovalState, StepState, WaitsOn
from durableflows.models import ApprovalRequest, StepRun, WorkflowRun
from durableflows.testing.faults import PERSON, Schedule, Verdict
from durableflows.testing.scenarios import Scenario
from durableflows.transactions import database

TRIES = 8
"""How often somebody does the same thing again who was refused, or died of it."""

Survive = Callable[[Callable[[], object], str], bool]


class People:
    """All of them. `survive` does something and says whether it was done; `tell` and `meet` keep what happens.

    known   runs that were there before; nobody acts on them
    """

    def __init__(
        self,
        scenario: Scenario,
        schedule: Schedule,
        users: Sequence[Any],
        *,
        survive: Survive,
        tell: Callable[[str], None],
        meet: Callable[[str, int], None],
    ) -> None:
        self.asked: dict[UUID, int] = {}
        self.cancelled: set[UUID] = set()
        self.schedule = schedule
        self.known: Sequence[UUID] = ()
        self._scenario, self._users = scenario, users
        self._survive, self._tell, self._meet = survive, tell, meet
        self._tries: Counter[UUID] = Counter()
        self._signalled: set[UUID] = set()
        self._wants_cancel: UUID | None = None

    def act(self) -> bool:
        """Do one thing that is to be done now. False: nobody has anything to do."""
        if self._wants_cancel is not None:
            self.cancel(self._wants_cancel)
            return True
        return self._answer() or self._signal()

    @property
    def has_plans(self) -> bool:
        """Does somebody still want to cancel?"""
        return self._wants_cancel is not None

    def cancel(self, run_id: UUID) -> None:
        """Cancel the run; who dies of it comes back."""
        self._wants_cancel = run_id
        self._tell("somebody cancels the run")
        asked = self._survive(partial(api.cancel, run_id, reason="faulttest"), "who cancels")
        run = WorkflowRun.objects.using(database()).get(pk=run_id)
        if run.cancel_asked_at is not None:
            self.cancelled.add(run_id)
        if asked or run.cancel_asked_at is not None or run.ended_at is not None:
            self._wants_cancel = None

    def _answer(self) -> bool:
        rows = ApprovalRequest.objects.using(database()).filter(state=ApprovalState.OPEN)
        for request in rows.exclude(run__in=self.known).order_by("created_at", "pk"):
            nth = self.asked.setdefault(request.pk, len(self.asked) + 1)
            self._meet(PERSON, nth)
            verdict = self.schedule.at(PERSON, Verdict, nth) or Verdict.APPROVE
            tries = self._tries[request.pk]
            if verdict == Verdict.EXPIRE or tries >= TRIES or not self._users:
                continue
            self._tries[request.pk] += 1
            person = self._users[tries % len(self._users)]
            self._tell(f"{person} says {verdict}")
            said = partial(api.answer, request.pk, str(verdict), by=person, facts_digest=request.facts_digest)
            self._survive(said, str(person))
            return True
        return False

    def _signal(self) -> bool:
        rows = StepRun.objects.using(database()).filter(state=StepState.WAITING, waits_on=WaitsOn.SIGNAL)
        for step in rows.exclude(run__in=self.known).order_by("created_at", "pk"):
            name = str(step.input.get("wants"))
            if name not in self._scenario.signals or self._tries[step.pk] >= TRIES or step.pk in self._signalled:
                continue
            self._tries[step.pk] += 1
            self._tell(f"somebody sends the signal {name}")
            payload, key = self._scenario.signals[name], f"faulttest-{step.pk}"
            if self._survive(partial(api.signal, step.run_id, name, payload, dedup_key=key), "the sender"):
                self._signalled.add(step.pk)
            return True
        return False
