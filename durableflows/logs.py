"""Log lines that say which run, step and attempt they are about. For the LOGGING of a project; standard library only.

`RunFilter` on a handler gives every line the ids, `JsonFormatter` prints lines as JSON. Neither touches a row, and both
mask what looks like a secret in each line, whoever wrote it: libraries log addresses with keys. Source: P14; R38.
"""

import json
import logging
from datetime import UTC, datetime

from durableflows import at_work
from durableflows.core.secrecy import mask_text

FIELDS = ("run", "workflow", "step", "attempt")
"""What each line is given, empty outside of steps."""


class RunFilter(logging.Filter):
    """Let everything through, with `run`, `workflow`, `step` and `attempt` on it; `where` is all of them in a word."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mark the line, and mask it. What it says of the ids itself (`extra=`) is left alone."""
        _mask(record)
        _mark(record)
        return True


def _mask(record: logging.LogRecord) -> None:
    """Handlers that come after see the masked line too. A line without a secret stays as it is, arguments and all."""
    said = record.getMessage()
    masked = mask_text(said)
    if masked != said:
        record.msg, record.args = masked, ()
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    if record.exc_text:
        record.exc_text = mask_text(record.exc_text)


def _mark(record: logging.LogRecord) -> None:
    about = at_work.about()
    values = ("", "", "", "") if about is None else (about.run_id, about.workflow, about.step, about.attempt or "")
    for name, value in zip(FIELDS, values, strict=True):
        if not hasattr(record, name):
            setattr(record, name, value)
    if not hasattr(record, "where"):
        record.where = "" if about is None else _where(about)


def _where(about: at_work.About) -> str:
    attempt = f"#{about.attempt}" if about.attempt else ""
    return f"[{about.workflow}.{about.step}{attempt} {about.run_id}] "


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the ids of the step, and the error's traceback.

    It needs no filter beside it. Other attributes of `extra=` are left out: what is printed is a closed list.
    """

    _mark = RunFilter()

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        self._mark.filter(record)
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name in (*FIELDS, "event") if (value := getattr(record, name, "")) not in ("", None)}
        if record.exc_text:
            line["error"] = record.exc_text
        return json.dumps(line, ensure_ascii=False, default=str)
