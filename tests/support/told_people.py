"""Notifiers for tests: one that keeps what it was given, and fails where a test says so."""

from collections.abc import Callable

from durableflows.notifiers import Notice

KEEPER = "tests.support.told_people.Keeper"
SECOND = "tests.support.told_people.Second"
TOLD: list[Notice] = []
ALSO_TOLD: list[Notice] = []
FAULTS: list[Callable[[Notice], object]] = []
"""Used up one a notice; without one it is kept."""


class Keeper:
    """Keeps each notice, unless a fault is in its way."""

    def notify(self, notice: Notice) -> None:
        if FAULTS:
            FAULTS.pop(0)(notice)
        TOLD.append(notice)


class Second:
    """Another way to tell people."""

    def notify(self, notice: Notice) -> None:
        ALSO_TOLD.append(notice)


class NoNotifier:
    """Not one: it has no `notify`."""


def told() -> list[tuple[str, str]]:
    """Who was told of what, in order."""
    return [(notice.person.get_username(), notice.kind) for notice in TOLD]


def raising(error: BaseException) -> Callable[[Notice], object]:
    """A fault that raises before anybody is told."""

    def fault(notice: Notice) -> object:
        raise error

    return fault


def telling_then_raising(error: BaseException) -> Callable[[Notice], object]:
    """A fault that raises after the person was told."""

    def fault(notice: Notice) -> object:
        TOLD.append(notice)
        raise error

    return fault


def forget() -> None:
    """Begin anew."""
    for kept in (TOLD, ALSO_TOLD, FAULTS):
        kept.clear()
