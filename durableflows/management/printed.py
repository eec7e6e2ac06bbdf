"""Verbs that print what the code says: states and moves, and the pages of docs/reference. They read no row."""

from argparse import Namespace
from pathlib import Path

import durableflows
from durableflows.errors import NotFoundError
from durableflows.management import graph, pages
from durableflows.management.tables import Report


def show_graph(options: Namespace) -> Report:
    """States and legal moves; or write the pages of docs/reference that are printed from the code."""
    if not options.write_docs:
        return Report(graph.as_data(), graph.page().splitlines())
    root = Path(durableflows.__file__).parents[1]
    if not (root / "pyproject.toml").is_file():
        raise NotFoundError(f"{root} is not durableflows' own repository, which these pages belong to")
    written = [str(root / path) for path in pages.PAGES]
    for path, text in pages.PAGES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text(), encoding="utf-8")
    return Report({"written": written}, [f"written: {path}" for path in written])
