"""The one line a project adds to its Celery app: `durableflows.celery.install(app)`.

It adds a bootstep that keeps a ticker beside each worker, and hands dead pool children's task ids to it. It never
overrides a setting of the host; `checks` names what differs from what is advised.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery import Celery, bootsteps, signals
from celery.platforms import set_process_title
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, connections

from durableflows import draining, leases
from durableflows.conf import settings
from durableflows.core import log_lines
from durableflows.leases import DRAINS_MARK, OVERRUN_MARK, Place

logger = log_lines.logger("durableflows.celery")

KEEP_SECONDS = 1.0
TICKER_COMMAND = "celery-ticker"


def install(app: Celery) -> None:
    """Make a Celery app's workers durable: ticker, lost children. Safe to call twice."""
    app.steps["worker"].add(TickerStep)
    # Workers and the command line have it; web processes do without half of Celery's worker.
    if "celery.worker.control" in sys.modules:
        from durableflows import control as control  # noqa: PLC0414 - imported for the commands that it adds
    signals.worker_init.connect(_begin_worker, dispatch_uid="durableflows.begin_worker", weak=False)
    signals.worker_process_init.connect(_begin_child, dispatch_uid="durableflows.begin_child", weak=False)
    signals.task_failure.connect(_report_lost, dispatch_uid="durableflows.report_lost", weak=False)
    signals.task_prerun.connect(_drop_old_connections, dispatch_uid="durableflows.before_task", weak=False)
    signals.task_postrun.connect(_drop_old_connections, dispatch_uid="durableflows.after_task", weak=False)


class _Pipe:
    """From the worker's parent to its ticker. Children close their copy: the ticker reads the end of the file."""

    reader: int | None = None
    writer: int | None = None

    @classmethod
    def open(cls) -> None:
        cls.reader, cls.writer = os.pipe()
        os.set_blocking(cls.writer, False)

    @classmethod
    def report(cls, line: str) -> None:
        """Tell the ticker; nothing is told where there is none, or where it does not read."""
        if cls.writer is not None:
            with contextlib.suppress(OSError):
                os.write(cls.writer, f"{line}\n".encode())

    @classmethod
    def close_writer(cls) -> None:
        if cls.writer is not None:
            with contextlib.suppress(OSError):
                os.close(cls.writer)
            cls.writer = None


def _begin_worker(sender: Any = None, **_: Any) -> None:
    draining.open_page()
    leases.begin_worker(str(getattr(sender, "hostname", sender)))


def _begin_child(**_: Any) -> None:
    _Pipe.close_writer()


def _drop_old_connections(task: Any = None, **_: Any) -> None:
    """What Django does around a request: connections that are too old or broken are not used by the next task.

    Celery closes all of them around each task, unless CELERY_DB_REUSE_MAX lets it; then nobody else looks at them.
    """
    if not getattr(getattr(task, "request", None), "is_eager", False):
        close_old_connections()


def _report_lost(task_id: str = "", exception: BaseException | None = None, **_: Any) -> None:
    """In the worker's parent: a pool child is dead. Only its task's id goes to the ticker, which looks at the rows.

    A child that has reached its hard time limit is reported before it is ended.
    """
    if isinstance(exception, WorkerLostError | TimeLimitExceeded | Terminated):
        mark = OVERRUN_MARK if isinstance(exception, TimeLimitExceeded) else ""
        # A full pipe is no loss: the heartbeat and `must_end_by` find the lease too.
        _Pipe.report(f"{mark}{task_id}")


class TickerStep(bootsteps.StartStopStep):
    """Starts the ticker after the pool and starts it again when it dies. Never stops it: it ends after its parent.

    Celery calls `stop` before the pool drains; a ticker that stopped then would let leases of steps under way lapse.
    """

    requires = ("celery.worker.components:Pool", "celery.worker.components:Timer")

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        _refuse_time_limits()  # Celery runs Django's checks at its start, and does not look at what they say
        _load_watchers()
        self.pid = 0
        super().__init__(parent, **kwargs)

    def start(self, parent: Any) -> None:
        """Fork the ticker, and look after it."""
        if not settings().TICKER:
            return
        _warn_of_pool(parent)
        place = Place(leases.boot_id(), leases.worker_name(), os.getpid(), _queues(parent))
        _Pipe.open()
        self._fork(place)
        parent.timer.call_repeatedly(KEEP_SECONDS, self._keep, args=(parent, place))

    def stop(self, parent: Any) -> None:
        """Leave the ticker, and let it say so: the pool has yet to drain."""
        _Pipe.report(DRAINS_MARK)

    terminate = stop

    def _fork(self, place: Place) -> None:
        connections.close_all()  # a connection must not be shared across the fork
        self.pid = os.fork()
        if self.pid == 0:
            _be_ticker(place)

    def _keep(self, parent: Any, place: Place) -> None:
        _notice_dead_children(parent)
        with contextlib.suppress(ChildProcessError):
            gone, status = os.waitpid(self.pid, os.WNOHANG)
            if gone == 0:
                return
            logger.error("the ticker ended with status %s and is started again", status)
        self._fork(place)


def _refuse_time_limits() -> None:
    # Here: it loads models, and this module is imported before Django's apps are ready.
    from durableflows.checks_celery import check_time_limits

    if found := check_time_limits(None):
        raise ImproperlyConfigured("; ".join(f"{one.id}: {one.msg}. {one.hint}" for one in found))


def _load_watchers() -> None:
    """Before the pool forks: what Celery tells in this process of children that died is the watchers' too."""
    from durableflows import watching  # it loads models, too

    watching.watchers()


def _warn_of_pool(worker: Any) -> None:
    """A worker's pool may be chosen on its command line, where no system check sees it."""
    # Here: it loads models, and this module is imported before Django's apps are ready.
    from durableflows.checks_celery import has_time_limits

    pool = str(getattr(worker.pool_cls, "__module__", worker.pool_cls))
    if not has_time_limits(pool):
        logger.warning(
            "time limits do nothing in the pool %s: a step that hangs keeps its thread until the worker is started "
            "again; its lease is voided, and another thread or worker takes it",
            pool,
        )


def _notice_dead_children(worker: Any) -> None:
    """Let the pool look at its children. It does so itself when one exits, but too early now and then: the child is not
    yet waitable, and the next look would be five seconds later."""
    pool = getattr(getattr(worker, "pool", None), "_pool", None)
    maintain = getattr(pool, "maintain_pool", None)
    if maintain is not None:
        maintain()


def _be_ticker(place: Place) -> None:
    """The child's life. TERM and INT are the parent's business; nothing of the parent's is cleaned up here."""
    from durableflows import ticker  # models: this module is imported before Django's apps are ready

    status = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        _Pipe.close_writer()
        set_process_title("celery", info=f"durableflows ticker of {place.name}")
        with contextlib.suppress(OSError):  # Linux: what `ps` and `top` show, also without setproctitle
            Path("/proc/self/comm").write_text(TICKER_COMMAND)
        ticker.run(place, _Pipe.reader)
        status = 0
    except BaseException:
        logger.exception("the ticker failed")
    finally:
        os._exit(status)


def _queues(worker: Any) -> tuple[str, ...]:
    with contextlib.suppress(AttributeError):
        return tuple(sorted(worker.app.amqp.queues.consume_from))
    return ()
