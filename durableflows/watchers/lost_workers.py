"""What Celery logs of pool children that died in a step: the engine goes on with it, and says so when it does not.

Used by `watchers.sentry` alone: Sentry's logging integration would make an issue of each such line.
"""

import logging
from typing import Any

from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery import signals
from sentry_sdk.scope import add_global_event_processor

from durableflows.core import registry

_DEAD = (WorkerLostError, TimeLimitExceeded, Terminated)
_EXITED = "Process %r pid:%r exited with"
_HARD_LIMIT = "Hard time limit"


class _Lost:
    """The last failure that Celery told of, until it logs it: both by the same thread, one after the other."""

    is_ours = False


def leave_out() -> None:
    """Keep these lines from Sentry, in this process and the children that it forks. Safe to call twice."""
    signals.task_failure.connect(_note, dispatch_uid="durableflows.sentry.lost", weak=False)
    add_global_event_processor(_kept)


def _note(sender: Any = None, exception: BaseException | None = None, **_: Any) -> None:
    _Lost.is_ours = isinstance(exception, _DEAD) and _is_ours(str(getattr(sender, "name", "")))


def _kept(event: Any, hint: Any) -> Any:
    record = hint.get("log_record")
    return None if isinstance(record, logging.LogRecord) and _is_told_otherwise(record) else event


def _is_told_otherwise(record: logging.LogRecord) -> bool:
    """A task that was lost and is no step has a line of its own, and that one is kept."""
    if record.name == "multiprocessing":
        return str(record.msg).startswith(_EXITED)
    if record.name != "celery.worker.request":
        return False
    if str(record.msg).startswith(_HARD_LIMIT) and isinstance(record.args, tuple):
        return any(_is_ours(str(word)) for word in record.args)
    raised = record.exc_info[0] if record.exc_info else None  # the error itself comes wrapped, with its traceback
    is_ours, _Lost.is_ours = _Lost.is_ours, False
    return is_ours and raised is not None and issubclass(raised, _DEAD)


def _is_ours(task: str) -> bool:
    workflow = task.partition(".")[0]
    return workflow == "durableflows" or workflow in {known for known, _ in registry.known()}
