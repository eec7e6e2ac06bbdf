"""The verb `faulttest`: finds the scenarios, makes a database to play in, plays in several processes, says how far.

Nothing of the project is touched: rows are made up in a database that is dropped, and nothing leaves the processes.
"""

import multiprocessing
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

from django.db import connections
from django.test.utils import setup_test_environment, teardown_test_environment

from durableflows.errors import InvalidState
from durableflows.management import databases, tables
from durableflows.testing import Report, Scenario, faulttest
from durableflows.testing.faults import parse
from durableflows.testing.promises import Standing
from durableflows.testing.scenarios import find

MEMORY, TEST = "memory", "test"
TELL_SECONDS = 2.0
MOST_PROCESSES = 16


def play(options: Namespace) -> tables.Report:
    """Play each scenario of a name, and report the matrix; exit code 1 when a promise broke."""
    scenarios = find(options.name)
    parse(options.replay)  # before a database is made
    options.schedules = -(-options.schedules // len(scenarios))  # shared; one more where it does not come out even
    processes = 1 if options.replay else _processes(options)
    place = databases.in_memory() if options.database == MEMORY else databases.throwaway(processes)
    with _test_environment(), place:
        reports = [_play(scenario, options, processes) for scenario in scenarios]
    data = [report.data for report in reports]
    lines = [line for report in reports for line in [*report.text.splitlines(), ""]][:-1]
    return tables.Report(data, lines, 0 if all(report.holds for report in reports) else 1)


def _processes(options: Namespace) -> int:
    wanted = options.processes or os.cpu_count() or 1
    return max(1, min(wanted, MOST_PROCESSES, options.schedules // 10 or 1))


@contextmanager
def _test_environment() -> Iterator[None]:
    """Mails stay in memory, DEBUG is off; inside a test that is so already."""
    try:
        setup_test_environment(debug=False)
    except RuntimeError:
        yield
        return
    try:
        yield
    finally:
        teardown_test_environment()


def _play(scenario: Scenario, options: Namespace, processes: int) -> Report:
    given: dict[str, Any] = {"schedules": options.schedules, "seed": options.seed, "replay": options.replay}
    teller = _Teller(scenario.name, 1 if options.replay else options.schedules)
    if processes == 1:
        return faulttest(scenario.workflow, scenario, on_progress=teller.tell, **given)
    return _side_by_side(scenario, given, processes, own_copies=options.database != MEMORY, teller=teller)


class _Teller:
    """Says on the error output how far it is: there it is in nobody's way."""

    def __init__(self, name: str, wanted: int) -> None:
        self._name, self._wanted = name, wanted
        self._began = self._told_at = time.monotonic()

    def tell(self, report: Report) -> None:
        """Write a line, if the last one is old enough."""
        now = time.monotonic()
        if now - self._told_at < TELL_SECONDS or not report.played:
            return
        self._told_at = now
        left = (self._wanted - report.played) * (now - self._began) / report.played
        broken = report.standings[Standing.BROKEN]
        print(
            f"{self._name}: {report.played} of {self._wanted}, {broken} broken, about {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )


def _side_by_side(
    scenario: Scenario, given: dict[str, Any], processes: int, *, own_copies: bool, teller: _Teller
) -> Report:
    """Share the plan among forked processes; a database in memory is copied by the fork itself."""
    began = time.monotonic()
    if own_copies:
        connections.close_all()  # a connection must not be shared across the fork
    fork = multiprocessing.get_context("fork")
    ends: dict[Connection, Any] = {}
    for number in range(processes):
        mine, theirs = fork.Pipe(duplex=False)
        work = _work_of(scenario, {**given, "part": (number, processes)}, number + 1 if own_copies else 0)
        child = fork.Process(target=work, args=(theirs,), daemon=True)
        child.start()
        theirs.close()
        ends[mine] = child
    latest: dict[Connection, Report] = {}
    try:
        _gather(ends, latest, lambda: teller.tell(Report.merged(list(latest.values()))))
    finally:
        for child in ends.values():
            child.terminate()
            child.join()
    report = Report.merged(list(latest.values()))
    report.seconds = time.monotonic() - began
    return report


def _work_of(scenario: Scenario, given: dict[str, Any], copy: int) -> Callable[[Connection], None]:
    def work(out: Connection) -> None:
        try:
            if copy:
                databases.use_copy(copy)
            told = 0.0

            def tell(report: Report) -> None:
                nonlocal told
                if time.monotonic() - told > TELL_SECONDS / 2:
                    told = time.monotonic()
                    out.send(report)

            out.send(faulttest(scenario.workflow, scenario, on_progress=tell, **given))
            out.send(None)
        except Exception as error:  # noqa: BLE001 - the parent says it
            out.send(f"{type(error).__name__}: {error}")
        finally:
            out.close()

    return work


def _gather(ends: dict[Connection, Any], latest: dict[Connection, Report], tell: Callable[[], None]) -> None:
    """Take what the processes send until each has ended. Raises InvalidState when one could not play."""
    open_ends = set(ends)
    while open_ends:
        for end in wait(list(open_ends)):
            assert isinstance(end, Connection)
            try:
                news = end.recv()
            except EOFError:
                raise InvalidState("a process of faulttest died; try it with --processes 1") from None
            if isinstance(news, Report):
                latest[end] = news
                tell()
            elif news is None:
                open_ends.remove(end)
            else:
                raise InvalidState(str(news))
