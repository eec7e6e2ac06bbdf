"""One suite for several pytest processes: each takes the next file of tests that no other has taken.

`TEST_LANE=FOLDER` names a folder that all of them share, where each file that is taken leaves a mark; a lane that is
called `FOLDER:last` begins at the other end. Files that mostly wait for processes come first, so that beside them one
lane does what mostly computes. Without the variable nothing here does anything.
"""

import gc
import os
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

import pytest

WAITING_FIRST = ("fault", "concurrency", "browser", "customer_ops", "console")


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the collector need not walk through it at each turn."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run what this lane takes. The next test is known before one ends, as pytest's own loop has it."""
    lane = os.environ.pop("TEST_LANE", "")  # not for a pytest that a test starts
    if not lane or session.testsfailed or session.config.option.collectonly:
        return None
    for item, following in pairwise(chain(_taken(session, lane), [None])):
        assert item is not None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    return True


def _taken(session: pytest.Session, lane: str) -> Iterator[pytest.Item]:
    folder, _, end = lane.partition(":")
    files: dict[Path, list[pytest.Item]] = {}
    for item in session.items:
        files.setdefault(item.path, []).append(item)
    for path in sorted(files, key=_place, reverse=end == "last"):
        if _take(Path(folder), path):
            yield from files[path]


def _place(path: Path) -> int:
    folder = path.relative_to(Path(__file__).parent).parts[0]
    return WAITING_FIRST.index(folder) if folder in WAITING_FIRST else len(WAITING_FIRST)


def _take(folder: Path, path: Path) -> bool:
    name = "-".join(path.relative_to(Path(__file__).parent).parts)
    try:
        (folder / name).touch(exist_ok=False)  # one file system call: two lanes never get the same
    except FileExistsError:
        return False
    return True
