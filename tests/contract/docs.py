"""Reads the pages as text: their samples, their commands, their links. For the tests of pages only."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.contract.source import ROOT

TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "UPGRADING.md")
COMPILED_ONLY = "<!-- compiled only -->\n"


@dataclass(frozen=True)
class Sample:
    """One block of Python. Not runnable: it needs a request, a broker, or names of the reader's project."""

    text: str
    is_runnable: bool


def pages() -> list[Path]:
    """Every page, from the top folder down."""
    return [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """How a page is called in test ids."""
    return str(page.relative_to(ROOT))


def samples(page: Path) -> list[Sample]:
    """The page's blocks of Python, in order."""
    found = re.findall(rf"({re.escape(COMPILED_ONLY)})?```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    return [Sample(text, not mark) for mark, text in found]


def source(page: Path) -> str:
    """What can be run of a page, as one module."""
    return "\n\n".join(sample.text for sample in samples(page) if sample.is_runnable)


def commands(page: Path) -> Iterator[str]:
    """Each `manage.py …` that stands in a block or between backticks, without the dots of a cut one."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for line in re.findall(r"^ {4,}(?:python )?manage\.py (.*)$|`manage\.py ([^`]+)`", text, re.MULTILINE):
        yield "".join(line).partition(" #")[0].strip()


def links(page: Path) -> list[tuple[str, str]]:
    """Each link to a file of ours: (path, anchor), the path as it is written."""
    return re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """What a page's headings are called in links."""
    heads = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
