"""The embedded broker: a folder in which a message is whole before anybody can see it."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from kombu import Connection

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
