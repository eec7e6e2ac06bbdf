"""Cells of a table that a spreadsheet opens: text that no program takes for a formula, in the form of RFC 4180.

A spreadsheet runs what begins with one of a few signs, wherever it thinks that a cell begins: after the separator of
its own country, too. Such a sign gets an apostrophe before it. Called by exports alone; reads only values.
Source: OWASP, CSV injection; R28.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from json import dumps

from durableflows.core.disguise import plainly
from durableflows.core.payload import redact
from durableflows.core.secrecy import mask_text

LONGEST = 30_000
"""Letters in a cell: the most that common spreadsheets take is 32,767."""
MARK = "\ufeff"
"""What tells some spreadsheets that a file is UTF-8."""

# A cell begins at the start, and after whatever some program separates cells by; blanks and quotes hide nothing.
_STARTS = re.compile(r"(^|[,;\t|\n])([\s\"'`]*)(?=[=+\-@|%\uff1d\uff0b\uff0d\uff20\u2212])")


def lines(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The table line by line, each as it is written: never more than one row in memory."""
    yield _line(heads)
    yield from map(_line, rows)


def cell(value: object) -> str:
    """One value as inert text: what hides in it is spelled out, what looks secret is masked, formulas stay letters."""
    text = _text(value)
    shown = _STARTS.sub(r"\1\2'", plainly(text[: LONGEST + 1]))
    # Cut once more as it is written, for marks are long: what a spreadsheet cuts itself begins another row there.
    return shown if len(text) <= LONGEST and len(shown) <= LONGEST else f"{shown[:LONGEST]}… (cut: {len(text)} letters)"


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    if isinstance(value, dict | list):
        return dumps(redact(value), ensure_ascii=False, sort_keys=True)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return mask_text(value) if isinstance(value, str) else str(value)


def _line(row: Sequence[object]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerow([cell(value) for value in row])
    return out.getvalue()
