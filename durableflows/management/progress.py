"""How far a long verb has come, for who sits in front of a terminal: one line on standard error, written over."""

import sys
from collections.abc import Callable

Progress = Callable[[int, int], None]


def shown(what: str) -> Progress | None:
    """Tell "400 of 12,000 WHAT" after each batch; None when nobody watches: a log would only fill up."""
    if not sys.stderr.isatty():
        return None

    def tell(done: int, total: int) -> None:
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\r{done:,} of {total:,} {what}{end}")
        sys.stderr.flush()

    return tell
