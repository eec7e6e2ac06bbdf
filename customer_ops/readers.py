"""Who still reads a queue of the folder broker: one file a queue that is declared to expire, touched by its reader.

Owns these marks. Called by `broker`; knows neither messages nor bindings. A queue without a mark never expires.
"""

import os
import time
from pathlib import Path
from urllib.parse import quote

TOUCH_SECONDS = 1.0


class Readers:
    """The marks in a folder, and the queues that this channel reads itself."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: dict[str, float] = {}
        """How many seconds a queue of this channel outlives its last touch."""
        self._touch_at: dict[str, float] = {}

    def announce(self, queue: str, *, seconds: float) -> None:
        """Say that this channel reads a queue, which lives for so long after the last touch."""
        self._own[queue] = seconds
        self._touch_at[queue] = time.monotonic() + TOUCH_SECONDS
        mark = self._mark(queue)
        mark.parent.mkdir(parents=True, exist_ok=True)
        whole = mark.with_name(f"{mark.name}.{os.getpid()}.part")  # never seen empty
        whole.write_text(str(seconds))
        whole.rename(mark)

    def is_forgotten_after_touch(self, queue: str) -> bool:
        """Touch the mark, now and then. True: somebody took it away, with the queue's bindings; it is there again."""
        if queue not in self._own or time.monotonic() < self._touch_at[queue]:
            return False
        self._touch_at[queue] = time.monotonic() + TOUCH_SECONDS
        try:
            os.utime(self._mark(queue))
        except FileNotFoundError:
            self.announce(queue, seconds=self._own[queue])
            return True
        return False

    def is_gone(self, queue: str) -> bool:
        """Has nobody read the queue for longer than it lives?"""
        mark = self._mark(queue)
        try:
            return time.time() - mark.stat().st_mtime > float(mark.read_text())
        except (FileNotFoundError, ValueError):
            return False

    def forget(self, queue: str) -> None:
        """Take the mark away, with the queue."""
        self._own.pop(queue, None)
        self._mark(queue).unlink(missing_ok=True)

    def _mark(self, queue: str) -> Path:
        return self._folder / f"{quote(queue, safe='@')}.reader"
