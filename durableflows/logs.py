"""Log lines that say which run, step and attempt they are about. For the LOGGING of a project; standard library only.

`RunFilter` on a handler gives every line the ids, `JsonFormatter` prints lines as JSON. Neither touches a row.
"""

import json
import logging
from datetime import UTC, datetime

from durableflows import at_work

FIELDS = ("run", "workflow", "step", "attempt")
"""What each line is given, empty outside of steps."""


class RunFilter(logging.Filter):
    """Let everything through, with `run`, `workflow`, `step` and `attempt` on it; `where` is all of them in a word."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mark the line. What it says of these itself (`extra=`) is left alone."""
        about = at_work.about()
        values = ("", "", "", "") if about is None else (about.run_id, about.workflow, about.step, about.attempt or "")
        for name, value in zip(FIELDS, values, strict=True):
            if not hasattr(record, name):
                setattr(record, name, value)
        if not hasattr(record, "where"):
            record.where = "" if about is None else _where(about)
        return True


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
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
