"""Drops guards, one at a time, each in a copy of the tree of its own, and lets the finder judge. Changes nothing here.

A finder is red for the right reason when the named test itself failed, or the simulation named a broken promise: not
when nothing could be collected, set up or imported, and not by a name that the dropped text had defined.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.guards.values import ROOT, SIMULATION, Change, Guard

LIMIT_SECONDS = 180.0
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".data", ".mypy_cache", ".ruff_cache", ".pytest_cache", "dist")
# What broke then is the text of the change, not a promise.
BROKEN_CODE = re.compile(
    r"\b(NameError|UnboundLocalError|ImportError|ModuleNotFoundError|SyntaxError|IndentationError)\b"
)
# Plugins that take longer to load than most finders to run, or change the order.
UNUSED = [word for name in ("randomly", "cacheprovider", "hypothesispytest", "anyio") for word in ("-p", f"no:{name}")]
IN_MEMORY = {"DATABASE_URL": "sqlite://:memory:", "CELERY_BROKER_URL": "memory://"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a finder turned red, and the first line of what it said; or why it could not judge."""

    is_red: bool
    why: str
    seconds: float = 0.0


@contextmanager
def tree(changes: Sequence[Change]) -> Iterator[Path]:
    """A copy of the tree in which the changes are made."""
    with tempfile.TemporaryDirectory(prefix="guards-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT, symlinks=True)
        for change in changes:
            change.apply(copy)
            compile((copy / "durableflows" / change.file).read_text("utf-8"), change.file, "exec")
        yield copy


def judge(guard: Guard, changes: Sequence[Change], environment: Mapping[str, str]) -> Verdict:
    """Drop the guard in a copy, and run its finder there."""
    began = time.monotonic()
    with tree(changes) as copy:
        if guard.found_by.startswith(SIMULATION):
            verdict = _play(copy, guard.found_by)
        else:
            fresh = any(change.file.startswith("migrations/") for change in changes)
            verdict = _test(copy, [guard.found_by], environment, fresh=fresh)
    return Verdict(verdict.is_red, verdict.why, time.monotonic() - began)


def judge_all(finders: Sequence[str], environment: Mapping[str, str]) -> Verdict:
    """Run all finders on the code as it is: none may be red."""
    with tree(()) as copy:
        for finder in [one for one in finders if one.startswith(SIMULATION)]:
            verdict = _play(copy, finder)
            if verdict.is_red or verdict.why:
                return Verdict(True, f"{finder}: {verdict.why}")
        tests = [one for one in finders if not one.startswith(SIMULATION)]
        return _test(copy, tests, environment, fresh=False, limit_seconds=LIMIT_SECONDS * 10) if tests else _GREEN


_GREEN = Verdict(False, "")


def _test(
    copy: Path,
    tests: Sequence[str],
    environment: Mapping[str, str],
    *,
    fresh: bool,
    limit_seconds: float = LIMIT_SECONDS,
) -> Verdict:
    results = copy.parent / "results.xml"
    command = [sys.executable, "-m", "pytest", "-q", *UNUSED]
    command += ["--create-db" if fresh else "--reuse-db", f"--junitxml={results}", *tests]
    given = {**environment, "DATABASE_URL": environment["DATABASE_URL"] + ("_fresh" if fresh else "")}
    code, output, _ = _run(command, copy, given, limit_seconds)
    if code is None:
        return Verdict(False, f"no end within {limit_seconds:.0f} s")
    if code == 0:
        return _GREEN
    failures = _failures(results) if code == 1 else []
    if not failures:
        return Verdict(False, f"pytest ended with {code}: {_last_line(output)}")
    if BROKEN_CODE.search(failures[0]):
        return Verdict(False, f"the code is broken, no promise: {failures[0]}")
    return Verdict(True, failures[0])


def _failures(results: Path) -> list[str]:
    """The first line of what each failed test said; errors of set-up and collection are none."""
    if not results.exists():  # it ended before it could collect anything
        return []
    cases = ET.parse(results).getroot().iter("testcase")
    found = [failure for case in cases for failure in case.findall("failure")]
    return [(failure.get("message") or "failed").strip().splitlines()[0] for failure in found]


def _play(copy: Path, finder: str) -> Verdict:
    command = [sys.executable, "manage.py", "durableflows", *shlex.split(finder)]
    command += ["--database", "memory", "--processes", "1", "--json"]
    code, output, errors = _run(command, copy, IN_MEMORY, LIMIT_SECONDS)
    if code == 0:
        return _GREEN
    try:
        broken = [one for report in json.loads(output) for failure in report["failures"] for one in failure["broken"]]
    except ValueError:
        broken = []
    if not broken:
        return Verdict(False, f"faulttest ended with {code}: {_last_line(errors)}")
    return Verdict(True, f"{broken[0]['promise']}: {broken[0]['text']}")


def _run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], limit_seconds: float
) -> tuple[int | None, str, str]:
    """Run a command in a group of its own, so that the workers that it starts end with it. None: it did not end."""
    given = {**os.environ, **environment, "PYTHONPATH": str(folder)}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=folder, env=given, stdout=output, stderr=errors, start_new_session=True)
        try:
            code: int | None = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        errors.seek(0)
        return code, output.read(), errors.read()


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
