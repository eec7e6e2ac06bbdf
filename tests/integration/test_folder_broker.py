"""The embedded broker: a folder in which a message is whole before anybody can see it."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection, Exchange, Producer, Queue

from customer_ops.environment import read_broker_url


def connect(folder: Path) -> Connection:
    # Each test has a queue of its own: kombu remembers bindings for the whole process, whatever the folder.
    settings = read_broker_url("", folder=folder)
    return Connection(settings["broker_url"], transport_options=settings["broker_transport_options"])


def test_a_reader_that_is_quicker_than_the_writer_never_sees_half_a_message(tmp_path: Path):
    """With kombu's own transport a worker ends here: JSONDecodeError, unrecoverable."""
    count = 300
    seen: list[int] = []
    failed: list[Exception] = []

    def write() -> None:
        with connect(tmp_path) as connection, connection.SimpleQueue(tmp_path.name) as queue:
            for number in range(count):
                queue.put({"number": number, "long": "x" * 20_000})

    def read() -> None:
        with connect(tmp_path) as connection, connection.SimpleQueue(tmp_path.name) as queue:
            while len(set(seen)) < count:
                with contextlib.suppress(queue.Empty):
                    message = queue.get(timeout=1)
                    seen.append(message.payload["number"])
                    message.ack()

    def telling(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a thread's error must reach the test
            failed.append(error)

    with connect(tmp_path) as connection, connection.SimpleQueue(tmp_path.name):
        pass  # bound before anybody sends: threads share kombu's memory of bindings, and could be quicker than the file
    threads = [threading.Thread(target=telling, args=(work,)) for work in (write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert failed == []
    assert sorted(set(seen)) == list(range(count))


def test_a_broken_message_of_another_program_does_not_end_the_reader(tmp_path: Path):
    with connect(tmp_path) as connection, connection.SimpleQueue(tmp_path.name) as queue:
        folder = Path((connection.transport_options or {})["data_folder_in"])
        (folder / f"0_a.{tmp_path.name}.msg").write_text("")
        queue.put({"number": 1})

        seen = []
        for _ in range(3):
            try:
                seen.append(queue.get(timeout=1).payload["number"])
            except queue.Empty:
                continue

    assert seen == [1]


# What Celery declares for a monitor's events and for remote control: it ends when nobody reads it.
LIVES_SECONDS = 60


class Monitor:
    """Reads what is told to all, as Flower reads events."""

    def __init__(self, folder: Path, exchange: Exchange, name: str) -> None:
        self.connection = connect(folder)
        queue = Queue(name, exchange, routing_key="#", auto_delete=True, expires=LIVES_SECONDS)
        self._queue = queue(self.connection.channel())
        self._queue.declare()
        self._mark = folder / "control" / f"{name}.reader"
        self._messages = folder / "messages"

    def read(self) -> Any:
        """The next message, or None."""
        message = self._queue.get(no_ack=True)
        return message.payload if message else None

    def is_silent_for(self, seconds: float) -> None:
        """Make it look as if it had read nothing for so long."""
        then = time.time() - seconds
        os.utime(self._mark, (then, then))

    def waiting(self) -> int:
        """How many messages lie there for it."""
        return len(list(self._messages.glob(f"*.{self._queue.name}.msg")))


@pytest.fixture(params=["fanout", "topic"])
def exchange(request: pytest.FixtureRequest, tmp_path: Path) -> Exchange:
    """Of remote control, and of events; kombu remembers names for the whole process."""
    return Exchange(f"{tmp_path.name}-{request.param}", type=request.param, durable=True)


@pytest.fixture
def tell(tmp_path: Path, exchange: Exchange) -> Iterator[Callable[[str], None]]:
    """Tell something to all who listen."""
    with connect(tmp_path) as connection:
        producer = Producer(connection.channel(), exchange, routing_key="worker.heartbeat", serializer="json")
        yield lambda text: producer.publish({"said": text})


def test_all_who_listen_are_told(tmp_path: Path, exchange: Exchange, tell: Callable[[str], None]):
    first, second = (Monitor(tmp_path, exchange, f"{tmp_path.name}.{name}") for name in ("first", "second"))

    tell("hello")

    assert [first.read(), second.read()] == [{"said": "hello"}] * 2
    assert first.read() is None


def test_nothing_is_kept_for_a_monitor_that_went_without_a_word(
    tmp_path: Path, exchange: Exchange, tell: Callable[[str], None]
):
    """With kombu's own transport each heartbeat of each worker adds a file, for ever."""
    gone = Monitor(tmp_path, exchange, f"{tmp_path.name}.gone")
    tell("to one who lives")
    gone.is_silent_for(LIVES_SECONDS + 1)

    tell("to one who is gone")

    assert gone.waiting() == 1


def test_the_next_monitor_takes_away_what_was_kept_for_one_that_is_gone(
    tmp_path: Path, exchange: Exchange, tell: Callable[[str], None]
):
    gone = Monitor(tmp_path, exchange, f"{tmp_path.name}.gone")
    tell("hello")
    gone.is_silent_for(LIVES_SECONDS + 1)

    Monitor(tmp_path, exchange, f"{tmp_path.name}.next")

    assert gone.waiting() == 0
    assert "gone" not in (tmp_path / "control" / f"{exchange.name}.exchange").read_text()
    assert list((tmp_path / "control").glob("*gone*")) == []


def test_a_monitor_that_was_only_slow_is_told_again(tmp_path: Path, exchange: Exchange, tell: Callable[[str], None]):
    slow = Monitor(tmp_path, exchange, f"{tmp_path.name}.slow")
    slow.is_silent_for(LIVES_SECONDS + 1)
    Monitor(tmp_path, exchange, f"{tmp_path.name}.next")

    stop_at = time.monotonic() + 20
    while (said := slow.read()) is None and time.monotonic() < stop_at:
        tell("hello again")

    assert said == {"said": "hello again"}


def test_a_queue_of_work_never_ends(tmp_path: Path):
    """Steps wait there for a worker that may start next week."""
    with connect(tmp_path) as connection, connection.SimpleQueue(tmp_path.name) as queue:
        queue.put({"number": 1})

        assert list((tmp_path / "control").glob("*.reader")) == []
        assert queue.get(timeout=5).payload == {"number": 1}
