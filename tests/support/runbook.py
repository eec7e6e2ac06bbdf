"""The pages of docs/operations as scenes: blocks of commands that a test runs, one after another, as they stand.

    <!-- played: NAME -->
    ```sh
    manage.py durableflows retry RUN --reason "deployed the fix"
    ```

Words in capitals are filled in by the test. A block without a mark, and a command that no test has run, are failures.
"""

import io
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from durableflows import doctor
from durableflows.core.states import RunState
from durableflows.models import WorkflowRun
from tests.contract.source import ROOT
from tests.support.payers import states

FOLDER = ROOT / "docs" / "operations"
MARKED = re.compile(r"^( *)<!-- played: (.+?) -->\n\1```sh\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FENCES = re.compile(r"^ *```", re.MULTILINE)
IN_CAPITALS = re.compile(r"[A-Z]+")

plays = "plays"


@dataclass(frozen=True)
class Block:
    """One block of a page."""

    page: str
    name: str
    commands: tuple[str, ...]


def pages() -> list[Path]:
    """All of them."""
    return sorted(FOLDER.glob("*.md"))


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that are marked, in order."""
    found = MARKED.findall(page.read_text("utf-8"))
    return [Block(page.stem, name, tuple(dedent(text).strip().splitlines())) for _, name, text in found]


def block(page: str, name: str) -> Block:
    """The one that a test plays."""
    (found,) = [one for one in blocks(FOLDER / f"{page}.md") if one.name == name]
    return found


def unmarked(page: Path) -> int:
    """How many blocks are not marked."""
    text = page.read_text("utf-8")
    return len(FENCES.findall(text)) // 2 - len(MARKED.findall(text))


def outside_of_blocks(page: Path) -> list[str]:
    """Lines that name a command of ours outside of any block, but for the page that says how all of them begin."""
    text = MARKED.sub("", page.read_text("utf-8")).replace("`manage.py durableflows …`", "")
    return [line for line in text.splitlines() if "manage.py" in line]


class Scene:
    """A block that is played."""

    def __init__(self, page: str, name: str) -> None:
        self.block = block(page, name)
        self.left = list(self.block.commands)

    def run(self, code: int = 0, **names: object) -> str:
        """Run the next command. `code`: its exit code; `names`: what stands for its words in capitals."""
        return said(self.fill(**names), code)

    def fill(self, **names: object) -> list[str]:
        """The next command's words, filled in; it counts as run."""
        assert self.left, f"{self.block.page}: {self.block.name} has no further command"
        return filled(self.left.pop(0), {name: str(value) for name, value in names.items()})

    def rest(self, **names: object) -> list[str]:
        """Run all that are left; each must end well."""
        return [said(self.fill(**names), 0) for _ in list(self.left)]


def filled(command: str, names: Mapping[str, str]) -> list[str]:
    """A command as words, with nothing left in capitals that was not given."""
    words = [names.get(word, word) for word in shlex.split(command)]
    known = {*RunState, *names.values()}
    left = [word for word in words if IN_CAPITALS.fullmatch(word) and word not in known]
    assert not left, f"{command}: what is {left}?"
    return words


def said(words: list[str], code: int) -> str:
    """What a command prints; its exit code must be this one."""
    program, verb, *arguments = words
    assert program == "manage.py"
    out, ended, message = io.StringIO(), 0, ""
    try:
        call_command(verb, *arguments, stdout=out)
    except CommandError as error:
        ended, message = error.returncode, str(error)
    except SystemExit as end:
        ended = int(end.code or 0)
    assert ended == code, f"{shlex.join(words)}\n{out.getvalue()}{message}"
    return out.getvalue() + message


def assert_over(*runs: WorkflowRun | UUID, state: RunState = RunState.SUCCEEDED) -> None:
    """The runs have ended so, the doctor has nothing to say, and all evidence agrees."""
    ids = [one.pk if isinstance(one, WorkflowRun) else one for one in runs]
    assert states(ids) == {state}
    assert [(one.code, one.text) for one in doctor.examine()] == []
    assert doctor.verify().findings == ()


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """The block that `@pytest.mark.plays(page, name)` names; all of its commands must have been run."""
    mark = request.node.get_closest_marker(plays)
    played = Scene(*mark.args)
    yield played
    assert not played.left, f"{played.block.page}, {played.block.name}: nobody ran {played.left}"
