"""Reads what a step body returned, against what the step declares. An unexpected value is an error, never a success.

Called by the runner when the body has returned. Pure: raises, or gives the directive that `core.decide` reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from durableflows.core import registry
from durableflows.core import state as states
from durableflows.core.definition import StepDefinition, WorkflowDefinition
from durableflows.core.directives import Compensate, Directive, Fail, Goto, Succeed
from durableflows.core.payload import canonical, storable, storable_text
from durableflows.core.refs import StepRef
from durableflows.core.secrecy import mask_text
from durableflows.core.state import WorkflowState
from durableflows.core.ways import Child, Each, Sleep, WaitFor, Way
from durableflows.core.wording import did_you_mean
from durableflows.errors import InvalidDefinition, InvalidState


@dataclass(frozen=True, slots=True)
class Place:
    """Where the body stands: its step, its workflow, and whether it is in the branch of an item."""

    step: StepDefinition
    workflow: WorkflowDefinition
    is_item: bool = False

    def check(self, target: str, option: str = "") -> str:
        """Refuse a step that is not in `to`."""
        if target not in self.step.to:
            declared = ", ".join(self.step.to) or "none"
            where = f" as {option}" if option else ""
            raise InvalidDefinition(
                f"step {self.step.name} returned {target!r}{where}, which is not in its `to` ({declared})"
                f"{did_you_mean(target, self.step.to)}"
            )
        return target


def directive_of(returned: object, place: Place) -> Directive:
    """Read what a step body returned.

    Raises   InvalidDefinition for anything that is not a way out of this step; InvalidState for a result, item or
             child's state that cannot be stored
    """
    if isinstance(returned, Fail):
        return Fail(storable_text(mask_text(str(returned.reason))))
    if isinstance(returned, Compensate):
        return Compensate(storable_text(mask_text(str(returned.reason))))
    if isinstance(returned, Succeed):
        result = storable(returned.result)
        canonical(result)
        return Succeed(result)
    if returned is None:
        return _way_on(place.step)
    onward = list(returned) if isinstance(returned, tuple | list) else [returned]
    if not onward or not all(isinstance(one, StepRef | Way) for one in onward):
        raise InvalidDefinition(
            f"step {place.step.name} returned {returned!r}: return self.<step>, sleep(...), wait_for(...), child(...), "
            "each(...), succeed(...), fail(...), compensate(...) or nothing"
        )
    return _goto(onward, place)


def _way_on(step: StepDefinition) -> Directive:
    to, end = step.to, step.end
    if end and not to:
        return Succeed()
    if len(to) == 1 and not end:
        return Goto((to[0],))
    ways = " or ".join([*(f"self.{name}" for name in to), *(["succeed()"] if end else [])])
    raise InvalidDefinition(f"step {step.name} returned nothing and may go more than one way: return {ways}")


def _goto(onward: list[object], place: Place) -> Goto:
    steps = tuple(place.check(one.name) for one in onward if isinstance(one, StepRef))
    ways = tuple(_way(one, place) for one in onward if isinstance(one, Way))
    begun = [*steps, *(way.step if isinstance(way, Each) else way.then for way in ways)]
    twice = {name for name in begun if begun.count(name) > 1}
    if twice:
        raise InvalidDefinition(f"step {place.step.name} returned the same step twice: {', '.join(sorted(twice))}")
    return Goto(steps, ways)


def _way(way: Way, place: Place) -> Way:
    place.check(way.then, "then")
    match way:
        case WaitFor(on_timeout=str(target)):
            place.check(target, "on_timeout")
        case Child():
            return _child(way, place)
        case Each():
            _check_each(way, place)
        case Sleep() | WaitFor():
            pass
    if not isinstance(way, Each):
        _refuse_join(way.then, place)
    return way


def _refuse_join(target: str, place: Place) -> None:
    # A join waits for branches already; its row cannot wait for a timer, a signal or a child as well.
    if place.workflow.step(target).join:
        raise InvalidDefinition(
            f"step {place.step.name} waits and then goes to {target!r}, which is a join: put a step between them"
        )


def _check_each(way: Each, place: Place) -> None:
    place.check(way.step)
    if place.is_item:
        raise InvalidDefinition(
            f"step {place.step.name} returned each(...) inside the branch of an item: start a child for each item, "
            "which can have items of its own"
        )
    if not place.workflow.step(way.then).join:
        raise InvalidDefinition(
            f"step {place.step.name} returned each(..., then={way.then!r}): it must gather the branches, "
            f"declare it with @step(join=True, ...)"
        )
    if place.workflow.step(way.step).join:
        raise InvalidDefinition(f"step {place.step.name} returned each({way.step!r}): a join cannot be done per item")


def _child(way: Child, place: Place) -> Child:
    if way.on_failure is not None:
        place.check(way.on_failure, "on_failure")
    _refuse_join(way.then, place)
    definition = _workflow_of(way)
    return replace(way, workflow=definition.name, version=definition.version, data=_state_of(way, definition))


def _workflow_of(way: Child) -> WorkflowDefinition:
    if isinstance(way.workflow, str):
        return registry.get(way.workflow, way.version)
    declared = getattr(way.workflow, "definition", None)
    if not isinstance(declared, WorkflowDefinition):
        raise InvalidDefinition(f"child({way.workflow!r}): neither a workflow nor the name of one")
    return registry.get(declared.name, declared.version if way.version is None else way.version)


def _state_of(way: Child, definition: WorkflowDefinition) -> object:
    given, wanted = way.data, definition.state_type
    if isinstance(given, WorkflowState):
        if not isinstance(given, wanted):
            raise InvalidState(f"child {definition.name} needs a {wanted.__name__}, not a {type(given).__name__}")
        return states.dump(given)
    if not isinstance(given, Mapping):
        raise InvalidState(f"child {definition.name}: a state is a mapping, not a {type(given).__name__}")
    return states.dump(states.build(wanted, given))
