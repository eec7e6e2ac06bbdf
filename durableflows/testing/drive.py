"""`faulttest`: plays many schedules of one scenario, and shrinks what fails."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connections

from durableflows.core.declare import Workflow
from durableflows.errors import InvalidState
from durableflows.testing import checkpoints, fakes
from durableflows.testing.faults import Schedule, parse
from durableflows.testing.play import Outcome, Simulation
from durableflows.testing.promises import Standing
from durableflows.testing.report import Report
from durableflows.testing.scenarios import Scenario, left_out, of
from durableflows.testing.schedules import Survey, plan
from durableflows.testing.shrink import shrink
from durableflows.transactions import database

PEOPLE_MADE = 3

Progress = Callable[[Report], None]


def faulttest(
    workflow: type[Workflow[Any]] | str,
    start: Scenario | Callable[[], object] | object,
    *,
    schedules: int = 200,
    seed: int = 1,
    replay: str = "",
    failures: int = 3,
    part: tuple[int, int] = (0, 1),
    on_progress: Progress | None = None,
    **given: Any,
) -> Report:
    """Play a workflow through crashes, lost messages and faulty providers, and check the promises after each schedule.

    start      a scenario, a function as a scenario has it, or the state to start with
    schedules  how many; seed: of those that are drawn; replay: the one line of a schedule, instead of all that
    failures   stop after so many that break: each is shrunk to the shortest schedule that still does
    part       (place, count): play only each count-th schedule from this place on, as one of several processes
    given      options of `Scenario`: receipts, pending, signals, people, check
    Writes     in a transaction that is rolled back, on a test database only; no mail, message or request leaves
    Raises     InvalidState when it cannot be sure of that, or the scenario cannot be played at all
    """
    if schedules < 1:
        raise InvalidState(f"{schedules} schedules: at least 1 is needed")
    scenario = of(workflow, start, **given)
    report = Report(scenario.name, scenario.workflow, seed, left_out=left_out(scenario))
    began = time.monotonic()
    with stage(scenario) as played:
        calm = played.play(Schedule())
        wanted = [parse(replay)] if replay else plan(played.survey(calm), schedules, seed)
        found: list[Outcome] = []
        with closing(played.play_all(calm, wanted[part[0] :: part[1]])) as outcomes:
            for outcome in outcomes:
                report.add(outcome)
                report.seconds = time.monotonic() - began
                if on_progress is not None:
                    on_progress(report)
                found += [outcome] if outcome.standing is Standing.BROKEN else []
                if len(found) >= failures:
                    break
        for outcome in found:
            _keep(report, played, outcome)
    return report


@dataclass(frozen=True, slots=True)
class Stage:
    """A scenario whose rows are there; each schedule is played on them and leaves them as they were."""

    scenario: Scenario
    begin: object
    people: Sequence[Any]
    refused: list[str]

    def play(self, wanted: Schedule) -> Outcome:
        """Play one schedule from its start. Raises InvalidState when its code reached for something outside."""
        outcome = Simulation(self.scenario, self.begin, self.people, wanted).finish()
        self._check_sealed()
        return outcome

    def play_all(self, calm: Outcome, wanted: Sequence[Schedule]) -> Generator[Outcome, None, None]:
        """Play many, each from the moment at which its first fault can strike."""
        first = Simulation(self.scenario, self.begin, self.people, Schedule())
        for outcome in checkpoints.outcomes(first, calm, wanted):
            self._check_sealed()
            yield outcome

    def survey(self, calm: Outcome) -> Survey:
        """See what a run meets when nothing goes wrong."""
        cleans_up = self.scenario.definition.on_cancel is not None
        return Survey(
            calm.crossed,
            calm.messages,
            calm.requests,
            calm.effects,
            tuple(self.scenario.pending),
            cleans_up,
            calm.events,
            undoes=self.scenario.definition.undo_on_cancel,
        )

    def _check_sealed(self) -> None:
        if self.refused:
            raise InvalidState(
                f"{self.scenario.workflow} opened a connection to {self.refused[0]} outside its effects, and it was "
                "refused: nothing was sent. Make the call an effect, or fake it in the scenario"
            )

    def breaks(self, wanted: Schedule) -> bool:
        """Does a promise not hold in it?"""
        return self.play(wanted).standing is Standing.BROKEN


@contextmanager
def stage(scenario: Scenario) -> Iterator[Stage]:
    """Make the scenario's rows, on a test database that is left as it was."""
    refuse_real_database()
    with ExitStack() as stack:
        stack.enter_context(fakes.rolled_back())
        begin = scenario.rows()
        people = list(scenario.people()) if scenario.people is not None else _superusers()
        refused = stack.enter_context(fakes.nothing_leaves())
        yield Stage(scenario, begin, people, refused)


def _keep(report: Report, played: Stage, outcome: Outcome) -> None:
    """Shrink a failure, and keep it unless the shortest form is known already."""
    shortest = shrink(outcome.schedule, played.breaks)
    if shortest not in [failure.schedule for failure in report.failures]:
        report.failures.append(played.play(shortest))


def _superusers() -> list[Any]:
    """People who may answer everything: nobody of them asked for anything."""
    users = get_user_model()
    made = []
    for number in range(1, PEOPLE_MADE + 1):
        user = users(is_superuser=True, is_active=True, **{users.USERNAME_FIELD: f"faulttest-{number}"})
        user.set_unusable_password()
        user.save(using=database())
        made.append(user)
    return made


def _is_in_memory(name: str) -> bool:
    return name == ":memory:" or "mode=memory" in name


def refuse_real_database() -> None:
    """Raise InvalidState unless every database of the project is one that a test made."""
    for alias in connections:
        connection = connections[alias]
        name = str(connection.settings_dict["NAME"])
        if connection.vendor == "unknown" or (connection.vendor == "sqlite" and _is_in_memory(name)):
            continue
        known = {str(connection.settings_dict["TEST"].get("NAME") or "")} - {""}
        if "test" not in name.rpartition("/")[2] and name not in known:
            raise InvalidState(
                f"database {alias!r} is {name.rpartition('/')[2]!r}, which is not one that a test made: faulttest "
                "plays with made-up rows only. Call it in a test, or as `manage.py durableflows faulttest NAME`"
            )
