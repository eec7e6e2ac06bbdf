"""Prints docs/reference/requirements.md: each requirement, with the tests and pages that prove it.

A test names the ids that it proves in its docstring, or in the docstring of its file when all of it does; a page names
them in a comment (`<!-- proves S2.36 -->`). Nothing here is a proof by itself. `python -m tools.requirements --write`.
"""

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ROOT / "tools" / "specification.txt"
PAGE = "docs/reference/requirements.md"
ID = re.compile(r"\b(?:S[123]|B)\.\d+\b")
RANGE = re.compile(r"\b((?:S[123]|B)\.)(\d+) to (?:\1)?(\d+)\b")
TITLES = {
    "B": "The project itself",
    "S1": "Human approvals and tool reliability",
    "S2": "Durable agent workflows",
    "S3": "A production pattern for long-running workflows",
}
NOT_YET = "not yet"
NOTE = """\
Printed by `python -m tools.requirements --write` from the docstrings of tests; do not edit.

An id has a proof when a test or a page names it. *Not yet* means that none does: it may be implemented in part, and
nothing proves it."""
TESTS_SHOWN = 3


def texts() -> dict[str, str]:
    """Read each id with its requirement, in order."""
    lines = TEXTS.read_text("utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))


def ids_in(text: str) -> list[str]:
    """List the ids that a docstring or comment names; `S3.6 to S3.9` are four."""
    spelled = RANGE.sub(lambda m: " ".join(f"{m[1]}{number}" for number in range(int(m[2]), int(m[3]) + 1)), text)
    return list(dict.fromkeys(ID.findall(spelled)))


def proofs() -> dict[str, list[tuple[str, str]]]:
    """Collect id -> (what it is called, the file), tests first."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        where = str(path.relative_to(ROOT))
        tree = ast.parse(path.read_text("utf-8"))
        for name in ids_in(ast.get_docstring(tree) or ""):
            found[name].append((path.stem, where))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for name in ids_in(ast.get_docstring(node) or ""):
                    found[name].append((node.name, where))
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for comment in re.findall(r"<!-- proves (.*?) -->", path.read_text("utf-8")):
            for name in ids_in(comment):
                found[name].append((path.stem, str(path.relative_to(ROOT))))
    return found


def page() -> str:
    """The whole page."""
    known, found = texts(), proofs()
    proven = sum(name in found for name in known)
    parts = [
        "# Requirements and their proofs",
        NOTE,
        f"{proven} of {len(known)} have a proof.",
    ]
    for prefix, title in TITLES.items():
        rows = [f"| {name} | {text} | {_cell(found.get(name, []))} |" for name, text in known.items()
                if name.startswith(f"{prefix}.")]  # fmt: skip
        parts += [f"## {prefix}: {title}", "\n".join(["| Id | Requirement | Proof |", "|---|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def _cell(found: list[tuple[str, str]]) -> str:
    if not found:
        return NOT_YET
    shown = [f"[{name}](../../{where})" for name, where in dict.fromkeys(found)]
    more = f" and {len(shown) - TESTS_SHOWN} more" if len(shown) > TESTS_SHOWN else ""
    return ", ".join(shown[:TESTS_SHOWN]) + more


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        (ROOT / PAGE).write_text(page(), "utf-8")
    else:
        sys.stdout.write(page())
