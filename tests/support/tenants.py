"""Who acts where, for tests: the username up to its dash. `acme-ann` acts in acme, `all-bob` everywhere."""

from typing import Any


def of(person: Any) -> list[str] | None:
    """What DURABLEFLOWS["TENANTS_OF"] names."""
    name = person.get_username().partition("-")[0]
    return None if name == "all" else [name]


def lost(person: Any) -> list[str]:
    """A callable that fails."""
    raise LookupError("the directory is away")


def text(person: Any) -> str:
    """Not a collection: its letters would be taken for names."""
    return "acme"


def numbers(person: Any) -> list[int]:
    """Not names."""
    return [1]


def nothing(person: Any) -> int:
    """Neither a collection nor None."""
    return 0


NOT_CALLABLE = "acme"
