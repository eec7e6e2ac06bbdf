"""How the catcher is told to misbehave: a text file, one line for each mail to come, used from the top and used once.

    RCPT 451 4.3.0 try again later      refuse the recipient this time
    RCPT 550 5.1.1 no such mailbox      refuse it for good
    TEXT 451 4.3.0 try again later      read the text, then refuse it
    TEXT cut-before                     read the text and hang up; it is lost
    TEXT cut-after                      keep the mail and hang up; its sender cannot know
    RCPT well, TEXT well                nothing unusual this time

`echo "TEXT 451 4.3.0 try again later" >> FILE` is all it takes. Any other line is dropped, and logged.
"""

import fcntl
import logging
import re
from pathlib import Path

logger = logging.getLogger(__name__)

RCPT, TEXT = "RCPT", "TEXT"
CUT_BEFORE, CUT_AFTER, WELL = "cut-before", "cut-after", "well"

_LINE = re.compile(rf"({RCPT}|{TEXT}) ([45]\d\d [ -~]+|{WELL})|({TEXT}) ({CUT_BEFORE}|{CUT_AFTER})")


class Script:
    """The file. Other programs may add lines while the catcher runs."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, *lines: str) -> None:
        """Add a line for each mail to come. Raises ValueError for one that means nothing; then none is added."""
        for line in lines:
            if not _LINE.fullmatch(line):
                raise ValueError(
                    f"{line!r} is no line of a mail script; examples: TEXT 451 4.3.0 later, TEXT cut-after"
                )
        with self._file.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write("".join(f"{line}\n" for line in lines))

    def take(self, point: str) -> str:
        """Take the first line for a point out of the file. Returns what is to be done, "" for nothing unusual."""
        try:
            with self._file.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                lines = _meaningful(file.read().splitlines())
                found = next((line for line in lines if line.startswith(f"{point} ")), "")
                if found:
                    lines.remove(found)
                file.seek(0)
                file.write("".join(f"{line}\n" for line in lines))
                file.truncate()
        except FileNotFoundError:
            return ""
        what = found.partition(" ")[2]
        return "" if what == WELL else what

    def lines(self) -> list[str]:
        """What is still to be done."""
        return self._file.read_text().splitlines() if self._file.exists() else []


def _meaningful(lines: list[str]) -> list[str]:
    for line in lines:
        if not _LINE.fullmatch(line):
            logger.warning("mail script: %r means nothing and is dropped", line)
    return [line for line in lines if _LINE.fullmatch(line)]
