"""A folder as broker, made safe for readers that are quicker than writers, and for readers that go without a word.

kombu's transport creates a message's file before it fills it. A worker that takes the empty file ends with
"Unrecoverable error: JSONDecodeError". Here a message appears under its name only when it is whole.

It also keeps every queue for ever, those too that are declared to expire: of a monitor that was killed, or of the
remote control of a worker that is gone, to which each event and each broadcast would add a file. Here such a queue
has a mark that its reader touches. Without a touch for as long as the queue was declared to live, nothing is put into
it any more, and the next who binds to the same exchange takes it away. A reader that was only slow binds it anew.
"""

import fcntl
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import filesystem
from kombu.transport.base import to_rabbitmq_queue_arguments  # type: ignore[attr-defined]
from kombu.utils.json import dumps

from customer_ops.readers import Readers

Binding = filesystem.exchange_queue_t


class Channel(filesystem.Channel):
    """Whole messages only; a table that is being written is read again; queues end with their readers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._readers = Readers(Path(self.control_folder))

    def prepare_queue_arguments(self, arguments: dict[str, Any] | None, **wanted: Any) -> dict[str, Any]:
        """Keep what a queue is declared with, as RabbitMQ spells it; kombu's virtual transports drop it."""
        return dict(to_rabbitmq_queue_arguments(arguments or {}, **wanted))

    def _new_queue(self, queue: str, *, arguments: dict[str, Any] | None = None, **_: Any) -> None:
        expires_ms = (arguments or {}).get("x-expires")
        if expires_ms:  # only who reads such a queue declares it
            self._readers.announce(queue, seconds=expires_ms / 1000)

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
        if self._readers.is_forgotten_after_touch(queue):
            self._bind_anew(queue)
        try:
            return super()._get(queue)
        except ValueError:  # a message that another program wrote, and not to its end: the rows know what it said
            raise Empty from None

    def get_table(self, exchange: str) -> list[Any]:
        """Read which queues of an exchange somebody reads, or may read later."""
        return [binding for binding in self._table(exchange) if not self._readers.is_gone(binding.queue)]

    def _table(self, exchange: str) -> list[Any]:
        """Read all of it; a table that cannot be read is written anew by the next who binds."""
        try:
            return list(super().get_table(exchange))
        except ValueError:
            return []

    def _queue_bind(self, exchange: str, routing_key: str | None, pattern: str | None, queue: str) -> None:
        """Add a queue to an exchange's table, and take away those whose readers are gone."""
        bound = Binding(routing_key or "", pattern or "", queue or "")
        gone: list[str] = []

        def add(known: list[Any]) -> list[Any]:
            gone.extend(old.queue for old in known if old != bound and self._readers.is_gone(old.queue))
            kept = [old for old in known if old.queue not in gone]
            return kept if bound in kept else [bound, *kept]

        self._change_table(exchange, add)
        for old in gone:  # after the table: without its mark a queue that is still in it would count as read
            self._forget(old)

    def _delete(self, queue: str, exchange: str, routing_key: str, pattern: str, *_: Any, **__: Any) -> None:
        bound = Binding(routing_key or "", pattern or "", queue or "")
        self._change_table(exchange, lambda known: [old for old in known if old != bound])
        self._forget(queue)

    def _change_table(self, exchange: str, change: Callable[[list[Any]], list[Any]]) -> None:
        """Replace an exchange's table as a whole, one process at a time."""
        table = Path(self._exchange_file(exchange))  # type: ignore[attr-defined]
        table.parent.mkdir(parents=True, exist_ok=True)
        with table.with_suffix(".lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)  # given back when the file is closed, also by a death
            known = self._table(exchange)
            changed = change(known)
            if changed != known:
                whole = table.with_suffix(f".{os.getpid()}.part")
                whole.write_text(dumps(changed))
                whole.rename(table)

    def _bind_anew(self, queue: str) -> None:
        for exchange, routing_key, arguments in list(self.state.queue_bindings(queue)):
            key_pattern_queue: Any = self.typeof(exchange).prepare_bind(queue, exchange, routing_key, arguments)
            self._queue_bind(exchange, *key_pattern_queue)

    def _forget(self, queue: str) -> None:
        self._readers.forget(queue)
        self._purge(queue)


class Transport(filesystem.Transport):
    """What `filesystem://` means in this project."""

    Channel = Channel

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """None: a folder has neither host nor port, and kombu warns at each connection that it made one up."""
        return {}
