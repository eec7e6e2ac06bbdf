"""A folder as broker, made safe for readers that are quicker than writers.

kombu's transport creates a message's file before it fills it. A worker that takes the empty file ends with
"Unrecoverable error: JSONDecodeError". Here a message appears under its name only when it is whole.
"""

import fcntl
import os
import time
import uuid
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):
    """Whole messages only; a table that is being written is read again."""

    def _put(self, queue: str, message: Any, **_: Any) -> None:  # type: ignore[override]
        name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"
        folder = Path(self.data_folder_out)
        whole = folder / f"{name}.part"  # no reader takes it: its name does not end as a message's does
        try:
            whole.write_text(dumps(message))
            whole.rename(folder / name)
        except OSError as error:
            raise ChannelError(f"cannot add {name} to {folder}") from error

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        try:
            return super()._get(queue)
        except ValueError:  # a message that another program wrote, and not to its end: the rows know what it said
            raise Empty from None

    def get_table(self, exchange: str) -> Any:
        """Read which queues an exchange has; a table that cannot be read is written anew by the next who binds."""
        try:
            return super().get_table(exchange)
        except ValueError:
            return []

    def _queue_bind(self, exchange: str, routing_key: str | None, pattern: str | None, queue: str) -> None:
        """Add a queue to an exchange's table, one process at a time; the table is replaced as a whole."""
        table = Path(self._exchange_file(exchange))  # type: ignore[attr-defined]
        table.parent.mkdir(parents=True, exist_ok=True)
        with table.with_suffix(".lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)  # given back when the file is closed, also by a death
            bound = filesystem.exchange_queue_t(routing_key or "", pattern or "", queue or "")
            known = self.get_table(exchange)
            if bound in known:
                return
            whole = table.with_suffix(f".{os.getpid()}.part")
            whole.write_text(dumps([bound, *known]))
            whole.rename(table)


class Transport(filesystem.Transport):
    """What `filesystem://` means in this project."""

    Channel = Channel
