"""How a run of an older version goes on under a newer one, as the newer class declares it.

    @migration(from_version=1, steps={"pay": "pay_out"})
    def from_v1(self, data):
        return {**data, "currency": "EUR"}

Owns the declaration and its pure part: which step becomes which, and what stands in the way. Carried out by
`services.migrations`. Never touches a row.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from durableflows.core.payload import JSON
from durableflows.errors import InvalidDefinition

Data: TypeAlias = dict[str, JSON]
Change: TypeAlias = Callable[..., Data]
"""Called with the workflow instance and the stored state of the old version; gives the state of the new one."""


@dataclass(frozen=True, slots=True)
class MigrationDefinition:
    """From one version to that of the class: the state's change, and old step names -> new ones."""

    from_version: int
    change: Change
    steps: Mapping[str, str] = field(default_factory=dict)

    def name_now(self, step: str) -> str:
        """What a step of the old version is called in the new one."""
        return self.steps.get(step, step)


class MigrationDeclaration:
    """What `@migration(...)` leaves in a class body."""

    def __init__(self, definition: MigrationDefinition) -> None:
        self.definition = definition


def migration(*, from_version: int, steps: Mapping[str, str] | None = None) -> Callable[[Change], MigrationDeclaration]:
    """Declare how runs of an older version go on under this one: a method of the state as it was stored.

    Shapes and units   steps: old step name -> new step name, for those that were renamed; a step keeps its effects
                       and their receipts under its new name
    Raises             InvalidDefinition, here or when the class is complete
    """
    if type(from_version) is not int or from_version < 1:
        raise InvalidDefinition(f"migration: from_version={from_version!r}, a whole number from 1 is needed")
    renamed = MappingProxyType(dict(steps or {}))

    def declare(change: Change) -> MigrationDeclaration:
        return MigrationDeclaration(MigrationDefinition(from_version, change, renamed))

    return declare


def check(where: str, version: int, found: Iterable[MigrationDefinition], steps: Iterable[str]) -> None:
    """Refuse migrations that lead nowhere. Raises InvalidDefinition."""
    known, seen = set(steps), set()
    for one in found:
        if one.from_version >= version:
            raise InvalidDefinition(f"{where}: a migration from version {one.from_version} to version {version}")
        if one.from_version in seen:
            raise InvalidDefinition(f"{where}: two migrations from version {one.from_version}")
        seen.add(one.from_version)
        for old, new in one.steps.items():
            if new not in known:
                raise InvalidDefinition(
                    f"{where}: the migration from version {one.from_version} calls {old!r} {new!r}, which is no step"
                )


def path(
    migrations: Mapping[int, Mapping[int, MigrationDefinition]], start: int, end: int
) -> tuple[tuple[int, MigrationDefinition], ...] | None:
    """Find the shortest way from one version to another: (version that is reached, its migration). None: there is none.

    migrations   version -> its migrations, by the version that they come from
    """
    ways: dict[int, tuple[tuple[int, MigrationDefinition], ...]] = {start: ()}
    waiting = [start]
    while waiting:
        here = waiting.pop(0)
        if here == end:
            return ways[here]
        for version, found in sorted(migrations.items(), reverse=True):
            if here in found and version not in ways:
                ways[version] = (*ways[here], (version, found[here]))
                waiting.append(version)
    return None
