"""Loggers whose lines nobody can forge, and that hold no secret: texts of others are one visible line, and masked.

Every module of the engine that logs gets its logger here. A name, a title or an error's text could otherwise begin a
line of its own, or send commands to the terminal that shows the log. What is logged of an error is its text: the error
itself would bring the variables of all its frames to whoever reports log lines. Source: P14; R28, R30, R38.
"""

import logging
import traceback
from collections.abc import Mapping

from durableflows.core.disguise import in_one_line, plainly
from durableflows.core.secrecy import mask_text

LONGEST = 2000
_INDENT = "    "


def logger(name: str) -> logging.Logger:
    """The logger of this name, with its guard."""
    found = logging.getLogger(name)
    if _GUARD not in found.filters:
        found.addFilter(_GUARD)
    return found


class _Guard(logging.Filter):
    """Makes each argument of a line plain and masked before any handler sees it, and an error a text."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, made plain."""
        if isinstance(record.args, tuple):
            record.args = tuple(map(_plain, record.args))
        elif isinstance(record.args, Mapping):
            record.args = {name: _plain(value) for name, value in record.args.items()}
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            record.exc_text = _told(error)
            record.exc_info = (type(error), _stand_in(error), None)
        return True


def _plain(value: object) -> object:
    """Numbers stay what they are: formats need them."""
    return value if isinstance(value, int | float) else in_one_line(mask_text(str(value)), LONGEST)


def _stand_in(error: BaseException) -> BaseException:
    """An error of the same name that has the masked text, and neither frames nor causes."""
    kind = type(error)
    named = type(kind.__name__, (Exception,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})
    made: BaseException = named(mask_text(_text(error)))
    return made


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide that something failed
        return "its text cannot be shown"


def _told(error: BaseException) -> str:
    """The traceback as handlers print it; a line that somebody wrote into an error's text does not begin like one of
    the log.
    """
    lines = plainly(mask_text("".join(traceback.format_exception(error)))).rstrip("\n").split("\n")
    return "\n".join([lines[0], *(_INDENT + line for line in lines[1:])])


_GUARD = _Guard()
