"""The only caller of Celery's sending side. Messages are hints: they carry ids, leave after commit, and may be lost.

A publish takes at most PUBLISH_SECONDS, after a failure none for a while, and its failure never reaches the caller: it
is kept on the row, and the row is sent again. Steps are sent by name, so a process that does not have the workflow
can send them too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from celery import current_app
from django.db.models import Q
from kombu.exceptions import ChannelError

from durableflows import broker, clock
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.core import log_lines, registry
from durableflows.core.classify import describe
from durableflows.core.states import StepState
from durableflows.errors import InvalidDefinition
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.models.compiled import update
from durableflows.transactions import after_commit, database

logger = log_lines.logger("durableflows.dispatch")

LOOKUP_TASK = "durableflows.lookup"
CROSSING_TASK = "durableflows.crossing"
ADDRESS_TASK, NOTIFY_TASK = "durableflows.address", "durableflows.notify"
UNCLAIMED_SECONDS = 3.0
UNCLAIMED_CAP_SECONDS = 60.0
TAKEN_SECONDS = 6.0
"""A ticker has a due row to itself for so long: longer than a publish takes, which PUBLISH_SECONDS bounds."""
MOST_FAULTY_SENDS = 10


class Unsendable(Exception):
    """A step's message cannot be sent, however well the broker is."""


class Failure(NamedTuple):
    """Why a message did not leave, or nothing; and whether that was the message's own fault."""

    text: str = ""
    is_ours: bool = False


def send_after_commit(run: WorkflowRun, step: StepRun, boundary: Boundary = Boundary.SETTLE_BEFORE_SEND) -> None:
    """Send a READY step of the run once the caller's transaction has committed, as it was written then."""
    step.run = run
    after_commit(partial(_send_crossing, step, boundary), f"the sending of step {step.pk}")


def _send_crossing(step: StepRun, boundary: Boundary) -> None:
    cross(boundary)
    if step.state == StepState.READY and broker.has_time():
        _send(step)


def send(step_id: UUID) -> bool:
    """Send a step if it is still READY; note on the row that it was sent, or why not.

    False too when the time for sending is used up (`broker.at_most`): the row stays due as it is.
    """
    step = _ready(step_id, Q())
    return step is not None and not _send(step).text


def send_due(step_id: UUID, still_due: Q) -> bool:
    """Send a step that a sweep has found due, unless another ticker has taken it since, or it is not due any more.

    Raises   Unsendable when not the broker but the message itself was at fault, MOST_FAULTY_SENDS times
    Crash    before the message it is due again after TAKEN_SECONDS; after it, too, and its second message does nothing
    """
    step = _ready(step_id, still_due)
    if step is None or not _take(step):
        return False
    failure = _send(step)
    if failure.is_ours and step.sends + 1 >= MOST_FAULTY_SENDS:
        raise Unsendable(f"{step.name} could not be sent to a worker {step.sends + 1} times: {failure.text}")
    return not failure.text


def give_back(step_id: UUID) -> bool:
    """Make a READY step due at once: whoever received its message does not take it. False: it is claimed, or ended."""
    rows = StepRun.objects.using(database()).filter(pk=step_id, state=StepState.READY)
    return bool(rows.update(resend_at=clock.now(), sent_at=None))


def _ready(step_id: UUID, still_due: Q) -> StepRun | None:
    if not broker.has_time():
        return None
    steps = StepRun.objects.using(database()).select_related("run")
    return steps.filter(still_due, pk=step_id, state=StepState.READY).first()


def _take(step: StepRun) -> bool:
    """Take the row for one publish. Whoever read it before finds `resend_at` changed, and so does a late note."""
    now = clock.now()
    until = now + timedelta(seconds=TAKEN_SECONDS)
    rows = StepRun.objects.using(database()).filter(pk=step.pk, state=StepState.READY, resend_at=step.resend_at)
    if not rows.update(resend_at=until, sent_at=now):
        return False
    step.resend_at = until
    return True


def _send(step: StepRun) -> "Failure":
    run = step.run
    queue = queue_of(run.workflow, run.version, step.name)
    failure = _publish(f"{run.workflow}.{step.name}", (str(run.pk), str(step.pk)), queue)
    _note_send(step, failure.text)
    return failure


def send_lookup(effect_id: UUID) -> bool:
    """Send the task that asks a provider about an effect."""
    if not broker.has_time():
        return False
    error = publish(LOOKUP_TASK, (str(effect_id),), None)
    now = clock.now()
    # Not claimed after a while: the sweep sends it again. Only the engine's sweeps read this column.
    SideEffect.objects.using(database()).filter(pk=effect_id).update(lookup_sent_at=now)
    return not error


def send_crossing_after_commit(step_id: UUID) -> None:
    """Send the task that carries what is due between a waiting step and its child's run. A sweep does so too."""
    after_commit(partial(send_crossing, step_id), f"the crossing of step {step_id}")


def send_crossing(step_id: UUID) -> bool:
    """Send the task that looks at a step and the child that it waits for."""
    return not publish(CROSSING_TASK, (str(step_id),), None)


def queue_of(workflow: str, version: int, step: str) -> str | None:
    """The queue that the run's pinned version declares for the step; None: the app's default."""
    try:
        return registry.get(workflow, version).step(step).queue
    except InvalidDefinition:  # another deploy's workflow: its default queue is the best guess
        return None


Transport = Callable[[str, tuple[str, ...]], None]
_replaced: list[Transport] = []


@contextmanager
def replaced(transport: Transport) -> Iterator[None]:
    """Let tests carry messages themselves: within the block nothing is published to the broker by this process."""
    _replaced.append(transport)
    try:
        yield
    finally:
        _replaced.pop()


def is_open() -> bool:
    """Is sending worth a try now? A sweep that finds it is not leaves its rows as they are, due."""
    return bool(_replaced) or current_app.conf.task_always_eager or broker.is_open()


def publish(name: str, arguments: tuple[str, ...], queue: str | None) -> str:
    """Publish one message within PUBLISH_SECONDS. Returns the error's text, or '' when the broker has it."""
    return _publish(name, arguments, queue).text


def _publish(name: str, arguments: tuple[str, ...], queue: str | None) -> Failure:
    if _replaced:
        _replaced[-1](name, arguments)
        return Failure()
    signature = current_app.signature(name, args=arguments, immutable=True)
    options: dict[str, Any] = {"queue": queue} if queue else {}
    try:
        if current_app.conf.task_always_eager:
            signature.apply_async(**options)
            return Failure()
        with broker.producer() as producer:
            signature.apply_async(producer=producer, retry=False, ignore_result=True, **options)
    except broker.BrokerRests as error:
        return Failure(str(error))
    except Exception as error:  # noqa: BLE001 - a broker can fail in any way, and the caller must not notice
        logger.warning("publishing %s failed: %s", name, error)
        return Failure(describe(error).text, isinstance(error, broker.OURS))
    return Failure()


def queued_messages(queue: str | None) -> int | None:
    """How many messages wait in the queue, or None when the broker cannot say."""
    name = queue or current_app.conf.task_default_queue
    try:
        with broker.producer() as producer:
            return int(producer.channel.queue_declare(queue=name, passive=True).message_count)
    except ChannelError as error:
        # 404: there is no such queue. On Redis that is every empty one, for a list without entries does not exist.
        return 0 if str(error.reply_code) == "404" else None
    except Exception:  # noqa: BLE001 - the broker is away
        return None


def unclaimed(now: datetime) -> Q:
    """Steps that were sent longer ago than a message takes through an empty queue: 3 s, doubled with each send.

    A broker may lose messages any number of times, so there is no last time; at most a minute, because a worker that
    does not know the step throws its message away each time, and the queue is empty too.
    """
    long_ago = Q(sent_at__lte=now - timedelta(seconds=UNCLAIMED_CAP_SECONDS))
    pause_seconds, sends = UNCLAIMED_SECONDS, 1
    while pause_seconds < UNCLAIMED_CAP_SECONDS:
        long_ago |= Q(sends__lte=sends, sent_at__lte=now - timedelta(seconds=pause_seconds))
        pause_seconds, sends = pause_seconds * 2, sends + 1
    return long_ago


def _note_send(step: StepRun, error: str) -> None:
    now = clock.now()
    sends = step.sends + 1
    pause = min(settings().RESEND_SECONDS * 2 ** min(step.sends, 16), settings().RESEND_CAP_SECONDS)
    if error:
        pause = min(pause, 2.0 * 2 ** min(step.sends, 6))
    # No version change: a claim that won meanwhile is not READY, and who has sent it meanwhile has changed `resend_at`.
    is_mine = {"id": step.pk, "state": StepState.READY, "resend_at": step.resend_at}
    noted = {"sent_at": None if error else now, "sends": sends, "resend_at": now + timedelta(seconds=pause)}
    update(StepRun, database(), noted | {"send_error": error}, is_mine)
