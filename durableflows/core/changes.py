"""What became of a run's state from one checkpoint to the next, as the history keeps it. Pure.

Earlier checkpoints are not kept: the history says of each field that changed what it was and what it is.
"""

from collections.abc import Mapping

from durableflows.core.payload import JSON, canonical, same, sha256

KEPT_BYTES = 1000
"""A larger value is kept as its digest and its size."""


def between(old: Mapping[str, JSON], new: Mapping[str, JSON]) -> dict[str, tuple[JSON, JSON]]:
    """The fields that differ: old and new value; None where a field was not there, or is not there any more."""
    names = [*new, *(name for name in old if name not in new)]
    return {name: (old.get(name), new.get(name)) for name in names if not same(old.get(name), new.get(name))}


def kept(changes: Mapping[str, tuple[JSON, JSON]]) -> dict[str, JSON]:
    """As the data of an event: name -> {"old": …, "new": …}, in the order of the state's fields."""
    return {name: {"old": bounded(old), "new": bounded(new)} for name, (old, new) in changes.items()}


def bounded(value: JSON) -> JSON:
    """A value that is small enough; else its digest and its size."""
    size = len(canonical(value))
    return value if size <= KEPT_BYTES else {"sha256": sha256(value), "bytes": size}
