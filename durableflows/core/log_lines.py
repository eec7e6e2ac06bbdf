"""Loggers whose lines nobody can forge: texts of others are one visible line in them, whatever they contain.

Every module of the engine that logs gets its logger here. A name, a title or an error's text could otherwise begin a
line of its own, or send commands to the terminal that shows the log. Source: R28, R30.
"""

import logging
import traceback
from collections.abc import Mapping

from durableflows.core.disguise import in_one_line, plainly

LONGEST = 2000
_INDENT = "    "


def logger(name: str) -> logging.Logger:
    """The logger of this name, with its guard."""
    found = logging.getLogger(name)
    if _GUARD not in found.filters:
        found.addFilter(_GUARD)
    return found


class _Guard(logging.Filter):
    """Makes each argument of a line plain before any handler sees it, and indents what a traceback quotes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, made plain."""
        if isinstance(record.args, tuple):
            record.args = tuple(map(_plain, record.args))
        elif isinstance(record.args, Mapping):
            record.args = {name: _plain(value) for name, value in record.args.items()}
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            record.exc_text = _told(record.exc_info[1])
        return True


def _plain(value: object) -> object:
    """Numbers stay what they are: formats need them."""
    return value if isinstance(value, int | float) else in_one_line(str(value), LONGEST)


def _told(error: BaseException) -> str:
    """The traceback as handlers print it; a line that somebody wrote into an error's text does not begin like one of
    the log.
    """
    lines = plainly("".join(traceback.format_exception(error))).rstrip("\n").split("\n")
    return "\n".join([lines[0], *(_INDENT + line for line in lines[1:])])


_GUARD = _Guard()
