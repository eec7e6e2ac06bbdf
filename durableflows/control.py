"""Remote control of workers: `celery inspect durableflows_holding` and `celery control durableflows_drain`.

Both run in the worker's parent process, and never end what is under way. The command line imports this too, before
Django's apps are ready and without a worker: rows are behind `holding`.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from celery.worker import state as worker
from celery.worker.control import control_command, inspect_command

from durableflows import draining, leases
from durableflows.core import keys, registry


@inspect_command()
def durableflows_holding(state: Any, **_: Any) -> dict[str, Any]:
    """Which steps this worker holds, since when, and until when its leases last."""
    from durableflows import holding

    return {"draining": draining.is_on(), "worker": str(leases.boot_id()), "steps": holding.held()}


@control_command()
def durableflows_drain(state: Any, **_: Any) -> dict[str, Any]:
    """Take no more steps: what is under way ends here, everything else is handed to other workers at once."""
    from durableflows import holding

    draining.begin()
    for queue in list(state.app.amqp.queues.consume_from):
        state.consumer.call_soon(state.consumer.cancel_task_queue, queue)
    handed_over = holding.give_back(_received())
    return {"ok": {"draining": True, "handed_over": handed_over, "under_way": len(holding.held())}}


def _received() -> Iterator[UUID]:
    """Steps whose messages this worker has received."""
    workflows = {name for name, _ in registry.known()}
    for request in list(worker.reserved_requests):
        if str(request.name).partition(".")[0] in workflows and len(request.args or ()) == 2:
            step_id = keys.read_id(str(request.args[1]))
            if step_id is not None:  # else somebody else's message, which its task refuses
                yield step_id
