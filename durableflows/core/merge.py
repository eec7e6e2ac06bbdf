"""State of steps that ran side by side: changes of different fields are both kept, of the same field neither wins.

Pure. Source: design, section 4 (settle: field-wise merge against the branch's base).
"""

from collections.abc import Mapping

from durableflows.core.payload import JSON

_MISSING = object()


def merge(
    base: Mapping[str, JSON], mine: Mapping[str, JSON], current: Mapping[str, JSON]
) -> tuple[dict[str, JSON], tuple[str, ...]]:
    """Bring one step's changes into the state as it is now.

    base, mine   the state that the step began with, and the one it left
    Returns      the merged state, and the fields that somebody else has changed meanwhile too
    """
    merged, conflicts = dict(current), []
    for name in sorted({*base, *mine}):
        was, is_, other = (state.get(name, _MISSING) for state in (base, mine, current))
        if is_ == was:
            continue
        if other != was:  # also to the same value: of two that counted one up, one would be lost
            conflicts.append(name)
        elif name in mine:
            merged[name] = mine[name]
        else:
            merged.pop(name, None)
    return merged, tuple(conflicts)
