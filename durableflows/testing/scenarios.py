"""What a simulation begins with: the rows of a project, how the run starts, and what the world outside answers.

Projects write scenarios in `faulttests.py`, beside `workflows.py`; the command finds them as Django finds `admin.py`.
Never plays anything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.utils.module_loading import autodiscover_modules

from durableflows.core import registry
from durableflows.core.declare import Workflow
from durableflows.core.definition import WorkflowDefinition
from durableflows.core.wording import did_you_mean
from durableflows.errors import InvalidDefinition, InvalidState, NotFoundError
from durableflows.models import WorkflowRun

Factory = Callable[..., object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One story of a workflow.

    rows       makes the rows that the run needs; no fault strikes there. Returns the state to start with, or a function
               that starts the run: faults strike in it, and it is called again when it died before its commit
    receipts   effect name -> what its provider answers: called as the effect, with the call and the arguments
    pending    effect name -> the same, for an answer that says "accepted, not done yet"
    events     effect name -> the body of an event about it, which its `event` function reads: called as the effect, and
               with what the provider says of the act as `receipt`
    signals    signal name -> payload, sent when a step waits for it
    people     who is asked, in turn; without it, superusers made for the simulation
    check      called with the run at the end of each schedule; what it asserts is one more promise
    """

    name: str
    workflow: str
    rows: Callable[[], object]
    receipts: Mapping[str, Factory] = field(default_factory=dict)
    pending: Mapping[str, Factory] = field(default_factory=dict)
    events: Mapping[str, Factory] = field(default_factory=dict)
    signals: Mapping[str, object] = field(default_factory=dict)
    people: Callable[[], Sequence[Any]] | None = None
    check: Callable[[WorkflowRun], None] | None = None
    owner: type[Workflow[Any]] | None = None
    """The class that it was written for, where one was named: another of this name is another workflow."""

    @property
    def is_known(self) -> bool:
        """Is its workflow one that this process knows now, in any version?"""
        versions = [version for name, version in registry.known() if name == self.workflow]
        if self.owner is None:
            return True
        return any(isinstance(registry.get(self.workflow, one).workflow, self.owner) for one in versions)

    @property
    def definition(self) -> WorkflowDefinition:
        """The workflow, in its highest version."""
        return registry.get(self.workflow)


_SCENARIOS: dict[str, Scenario] = {}


def scenario(workflow: type[Workflow[Any]] | str, **given: Any) -> Callable[[Callable[[], object]], Scenario]:
    """Make a function the scenario of a workflow, under the function's name. Options are the fields of `Scenario`.

    @scenario(Refund, receipts={"payments.refund": refund_receipt})
    def refund():
        return {"charge_id": "ch_1", "amount": Money(80_000, "USD")}
    """

    def register(rows: Callable[[], object]) -> Scenario:
        made = of(workflow, rows, **given)
        other = _SCENARIOS.get(made.name)
        if other is not None and other.is_known and other.rows.__module__ != rows.__module__:
            raise InvalidDefinition(f"two scenarios are called {made.name!r}: in {other.rows.__module__} and here")
        _SCENARIOS[made.name] = made
        return made

    return register


def of(
    workflow: type[Workflow[Any]] | str, start: "Scenario | Callable[[], object] | object", **given: Any
) -> Scenario:
    """A scenario out of whatever a test has: a scenario, a function, or a state."""
    given = {name: value for name, value in given.items() if value}
    if isinstance(start, Scenario):
        return replace(start, **given)
    name = workflow if isinstance(workflow, str) else workflow.name
    given["owner"] = None if isinstance(workflow, str) else workflow
    if callable(start):
        return Scenario(name=getattr(start, "__name__", name), workflow=name, rows=start, **given)
    return Scenario(name=name, workflow=name, rows=lambda: start, **given)


def find(name: str) -> list[Scenario]:
    """The scenarios of this name, or of the workflow of this name. Raises NotFoundError that says what to write."""
    autodiscover_modules("faulttests")
    known = [one for one in _SCENARIOS.values() if one.is_known]
    found = [one for one in known if one.name == name] or [one for one in known if one.workflow == name]
    return found or [_bare(name)]


def _bare(name: str) -> Scenario:
    """A workflow whose state has a default for everything needs no scenario."""
    workflows = sorted({known for known, _ in registry.known()})
    if name not in workflows:
        scenarios = sorted(one.name for one in _SCENARIOS.values() if one.is_known)
        guess = did_you_mean(name, [*workflows, *scenarios])
        known = ", ".join(dict.fromkeys([*scenarios, *workflows])) or "nothing"
        raise NotFoundError(f"there is no scenario and no workflow {name!r}{guess} (known are {known})")
    definition = registry.get(name)
    try:
        state = definition.state_type()
    except (InvalidState, ValueError) as error:
        raise NotFoundError(
            f"nothing says what a run of {name} starts with: write a faulttests.py beside its workflows.py, with a "
            f"function that gives the state under @scenario({type(definition.workflow).__name__})"
        ) from error
    return Scenario(name=name, workflow=name, rows=lambda: state)


def left_out(scenario: Scenario) -> list[str]:
    """What the workflow's effects can meet and the scenario gives no words for, so that no schedule plays it."""
    effects = sorted(scenario.definition.effects.values(), key=lambda effect: effect.name)
    found = [
        f"{effect.name}: an answer that says accepted and not done yet (give pending=)"
        for effect in effects
        if effect.accepted is not None and effect.name not in scenario.pending
    ]
    found += [
        f"{effect.name}: events about it (give events=)"
        for effect in effects
        if effect.event is not None and effect.name not in scenario.events
    ]
    return found
