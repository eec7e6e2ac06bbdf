"""`manage.py durableflows export-decisions`: what was decided, asked or looked at, as CSV for auditors."""

from argparse import Namespace
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from durableflows import clock, exports
from durableflows.core import cells
from durableflows.errors import InvalidState
from durableflows.management import operators
from durableflows.management.tables import Report

STANDARD_OUTPUT = "-"


def export(options: Namespace) -> Report:
    """Write the table, a line at a time. A person named by --by gets what that person may see."""
    wanted = exports.Wanted(
        options.what,
        operators.person(options.by),
        _moment(options.since),
        _moment(options.until),
        options.workflow,
    )
    lines = _marked(exports.lines(wanted), has_mark=options.bom)
    if options.output == STANDARD_OUTPUT:
        return Report({}, [], pieces=lines)
    count = _write(Path(options.output), lines)
    return Report({"file": options.output, "rows": count}, [f"{options.output}: {count} rows"])


def _write(path: Path, lines: Iterator[str]) -> int:
    """Only whoever runs the command may read the file: it holds what people wrote and where they were."""
    try:
        path.touch(mode=0o600)
        with path.open("w", encoding="utf-8", newline="") as file:
            count = sum(1 for line in lines if file.write(line))
    except OSError as error:
        raise InvalidState(f"--output {path}: {error.strerror or error}") from error
    return count - 1


def _marked(lines: Iterator[str], *, has_mark: bool) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield cells.MARK + line if has_mark and number == 0 else line


def _moment(given: timedelta | datetime | None) -> datetime | None:
    return clock.now() - given if isinstance(given, timedelta) else given
