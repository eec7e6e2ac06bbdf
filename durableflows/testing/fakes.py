"""What is put in the place of the world while a simulation runs, and taken away again, whatever happens.

A transaction takes the place of the database and is rolled back; commits inside it are played, so that messages leave
after them. Effects call simulated providers. Nothing reaches a network, a broker or a mail server.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from celery import Celery
from django.conf import settings
from django.core import mail
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import override_settings

from durableflows import clock, context, dispatch, lookups, runner, transactions
from durableflows.clock import Clock
from durableflows.core import effects as core_effects
from durableflows.core import registry
from durableflows.core.definition import EffectDefinition
from durableflows.core.effects import EffectCall
from durableflows.errors import InvalidState
from durableflows.testing.provider import Provider
from durableflows.testing.sealed import sealed

LOCMEM = "django.core.mail.backends.locmem.EmailBackend"


@contextmanager
def rolled_back() -> Iterator[None]:
    """Undo at the end whatever is written in the block, on every database of the project.

    The engine takes it for the transaction that Django's TestCase opens around a test.
    """
    with ExitStack() as stack:
        for alias in connections:
            if connections[alias].vendor != "unknown":  # Django's dummy: no database at all
                stack.enter_context(_undone(alias))
        yield


@contextmanager
def _undone(alias: str) -> Iterator[None]:
    block = transaction.atomic(using=alias)
    vars(block)["_from_testcase"] = True
    with block:
        try:
            yield
        finally:
            transaction.set_rollback(True, using=alias)


@contextmanager
def commits_played() -> Iterator[None]:
    """Inside a test case's transaction, run what `on_commit` was given when the code's own transactions commit."""
    with ExitStack() as stack:
        for alias in connections:
            if connections[alias].in_atomic_block:
                stack.enter_context(_commits_of(connections[alias]))
        yield


@contextmanager
def _commits_of(connection: BaseDatabaseWrapper) -> Iterator[None]:
    depth, before = len(connection.savepoint_ids), len(connection.run_on_commit)
    release, register = connection.savepoint_commit, connection.on_commit

    def savepoint_commit(sid: str) -> None:
        release(sid)
        if len(connection.savepoint_ids) == depth:
            hooks: list[Any] = connection.run_on_commit[before:]
            del connection.run_on_commit[before:]
            for _, hook, robust in hooks:  # whoever dies in one takes the others along, as a process does
                _run(hook, robust=robust)

    def on_commit(hook: Callable[[], object], robust: bool = False) -> None:  # noqa: FBT001, FBT002 - Django's own
        if len(connection.savepoint_ids) == depth:
            _run(hook, robust=robust)
        else:
            register(hook, robust)

    with (
        patch.object(connection, "savepoint_commit", savepoint_commit),
        patch.object(connection, "on_commit", on_commit),
    ):
        yield


def _run(hook: Callable[[], object], *, robust: bool) -> None:
    try:
        hook()
    except Exception:
        if not robust:
            raise
        logging.getLogger("durableflows.testing").exception("what was to be done after a commit failed")


def depth() -> int:
    """How many transactions are open on the engine's database, the played database itself included."""
    return len(connections[transactions.database()].savepoint_ids)


class _Seconds:
    """The `time` module of a process whose monotonic clock is the simulation's."""

    def __init__(self, fake: Clock, pass_time: Callable[[float], None]) -> None:
        self._clock, self._began_at, self.sleep = fake, fake.now(), pass_time

    def monotonic(self) -> float:
        return (self._clock.now() - self._began_at).total_seconds()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@contextmanager
def played_time(fake: Clock, pass_time: Callable[[float], None], seed: int) -> Iterator[Random]:
    """Give the engine the simulation's time and chance: without that no schedule could be played again."""
    seconds = _Seconds(fake, pass_time)
    with ExitStack() as stack:
        stack.enter_context(clock.replaced(fake))
        # `send_by` is judged by the process's own clock: a worker that stalls must find it past (protocol, rule 2).
        for module in (context, core_effects, lookups, transactions):
            stack.enter_context(patch.object(module, "time", seconds))
        chance = Random(seed)  # noqa: S311 - to be played again
        stack.enter_context(patch.object(runner, "_random", chance))
        yield chance


@contextmanager
def played_messages(carry: Callable[[str, tuple[str, ...]], None]) -> Iterator[None]:
    """Carry the engine's messages here, and ask no broker how many wait."""
    with dispatch.replaced(carry), patch.object(dispatch, "queued_messages", lambda queue: None):
        yield


@contextmanager
def nothing_leaves() -> Iterator[list[str]]:
    """Keep mails in memory, notify nobody, drop a project's own Celery messages, refuse connections.

    Gives what was refused.
    """

    def dropped(app: Celery, name: str, *arguments: object, task_id: str = "", **options: object) -> Any:
        return app.AsyncResult(task_id or "not-sent")

    with (
        patch.object(Celery, "send_task", dropped),
        override_settings(EMAIL_BACKEND=LOCMEM, DURABLEFLOWS={**_engine_settings(), "NOTIFIERS": ()}),
        patch.object(mail, "outbox", [], create=True),
        sealed() as refused,
    ):
        yield refused


def _engine_settings() -> dict[str, Any]:
    return dict(getattr(settings, "DURABLEFLOWS", {}))


@contextmanager
def played_effects(provider: Provider) -> Iterator[None]:
    """Let every effect of every known workflow call the simulated provider, and no other code. But what an effect
    writes in our own database, with its row, is rows as all others: nobody outside takes part.

    Bodies hold the definitions themselves, so these are changed, and changed back.
    """
    effects = [effect for workflow in registry.definitions() for effect in workflow.effects.values()]
    known = {id(effect): effect for effect in effects if not effect.transactional}
    before = [(effect, effect.function, effect.lookup) for effect in known.values()]
    try:
        for effect in known.values():
            _replace(effect, partial(_send, provider, effect), effect.lookup and partial(_look_up, provider, effect))
        yield
    finally:
        for effect, function, lookup in before:
            _replace(effect, function, lookup)


def _replace(effect: EffectDefinition[Any], function: Callable[..., Any], lookup: Callable[..., object] | None) -> None:
    if not callable(function):
        raise InvalidState(f"{effect.name} has no function")
    object.__setattr__(effect, "function", function)  # frozen for everybody else
    object.__setattr__(effect, "lookup", lookup)


def _send(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, **arguments: object) -> object:
    return provider.send(effect, call, arguments)


def _look_up(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, **arguments: object) -> object:
    return provider.look_up(effect, call)


class Errors(logging.Handler):
    """Keeps what the engine logs as an error: a sweep swallows what fails in it, so that others go on."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a sweep's error; errors in a user's step are part of the story."""
        if record.name == "durableflows.sweeps":
            error = record.exc_info[1] if record.exc_info else None
            self.texts.append(f"{record.getMessage()}: {type(error).__name__}: {error}")


@contextmanager
def quiet() -> Iterator[Errors]:
    """Keep the log of the played processes out of the test's own."""
    logger, errors = logging.getLogger("durableflows"), Errors()
    before = (logger.handlers, logger.propagate, logger.level)
    logger.handlers, logger.propagate = [errors], False
    logger.setLevel(logging.ERROR)
    try:
        yield errors
    finally:
        logger.handlers, logger.propagate = before[:2]
        logger.setLevel(before[2])
