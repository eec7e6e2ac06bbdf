"""All workflows that this process knows, by name and version.

Owns the table. Filled when a `Workflow` class is declared; read by the engine, the checks and the commands.
Never imports a workflow: finding the modules is the app's work.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from durableflows.core.definition import WorkflowDefinition
from durableflows.core.wording import did_you_mean
from durableflows.errors import InvalidDefinition, UnknownWorkflow

_DEFINITIONS: dict[tuple[str, int], WorkflowDefinition] = {}


def register(definition: WorkflowDefinition) -> None:
    """Make a workflow known. The same class read again (a module that is reloaded) takes the old one's place.

    Raises InvalidDefinition when another class, or the same with another structure, has this name and version:
    running runs would go on under rules that they did not start with.
    """
    key = (definition.name, definition.version)
    other = _DEFINITIONS.get(key)
    if other is not None and _class_of(other) != _class_of(definition):
        raise InvalidDefinition(
            f"{_class_of(definition)}: workflow {key[0]!r} version {key[1]} is declared by {_class_of(other)} already: "
            "give one of them another name or version (in tests, declare it inside registry.isolated())"
        )
    if other is not None and other.structure != definition.structure:
        raise InvalidDefinition(
            f"{_class_of(definition)}: workflow {key[0]!r} version {key[1]} is known with other steps, effects or "
            f"state: keep the old class and declare version {key[1] + 1}"
        )
    _DEFINITIONS[key] = definition


def get(name: str, version: int | None = None) -> WorkflowDefinition:
    """Return a workflow, of the highest version when none is given. Raises UnknownWorkflow naming what is known."""
    versions = sorted(known_version for known_name, known_version in _DEFINITIONS if known_name == name)
    if not versions:
        names = sorted({known_name for known_name, _ in _DEFINITIONS})
        listed = f"known are {', '.join(names)}" if names else "none is known: is the module imported?"
        raise UnknownWorkflow(f"no workflow {name!r}{did_you_mean(name, names)} ({listed})")
    wanted = versions[-1] if version is None else version
    if wanted not in versions:
        listed = ", ".join(str(known_version) for known_version in versions)
        raise UnknownWorkflow(f"no version {wanted} of workflow {name!r} (known are {listed})")
    return _DEFINITIONS[name, wanted]


def known() -> tuple[tuple[str, int], ...]:
    """List (name, version) of all workflows, sorted."""
    return tuple(sorted(_DEFINITIONS))


def definitions() -> tuple[WorkflowDefinition, ...]:
    """List all workflows, sorted by name and version."""
    return tuple(_DEFINITIONS[key] for key in known())


@contextmanager
def isolated() -> Iterator[None]:
    """Start with no workflows and put the known ones back at the end: for tests that declare their own."""
    before = dict(_DEFINITIONS)
    _DEFINITIONS.clear()
    try:
        yield
    finally:
        _DEFINITIONS.clear()
        _DEFINITIONS.update(before)


def _class_of(definition: WorkflowDefinition) -> str:
    cls = type(definition.workflow)
    return f"{cls.__module__}.{cls.__qualname__}"
