"""The broker is asked how many messages wait: an empty queue means that what was sent and not claimed is lost (R02)."""

import uuid

import pytest
from celery import current_app
from kombu import Queue

from durableflows import dispatch
from tests.services import free_port
from tests.support.brokers import broker_at


@pytest.mark.worker
def test_an_emptied_queue_of_the_real_broker_counts_as_empty(broker_url: str) -> None:
    """Redis has no empty lists: to kombu such a queue is not there."""
    queue = f"test-{uuid.uuid4().hex}"

    assert dispatch.publish("nobody.knows", ("1",), queue) == ""
    assert dispatch.queued_messages(queue) == 1

    with current_app.connection_for_write() as connection:
        waiting = Queue(queue, channel=connection.default_channel)
        waiting.purge()
        assert dispatch.queued_messages(queue) == 0
        waiting.delete()


def test_a_broker_that_is_away_says_nothing_about_its_queues() -> None:
    with broker_at(f"redis://127.0.0.1:{free_port()}/0"):
        assert dispatch.queued_messages("any") is None
