"""Words that all error messages share. Owns "did you mean"; called by whoever refuses a name."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return ", did you mean 'pay'?" when a known name is near, else nothing."""
    near = get_close_matches(str(name), list(known), n=1, cutoff=0.6)
    return f", did you mean {near[0]!r}?" if near else ""
