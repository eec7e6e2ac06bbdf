"""Verbs that print what the code says: states and moves, workflows, the pages of docs/reference. They read no row."""

from argparse import Namespace
from pathlib import Path

import durableflows
from durableflows.core import registry
from durableflows.errors import NotFoundError
from durableflows.management import graph, library_tables, matrices, matrix, pages, plans
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


def plan(options: Namespace) -> Report:
    """What a workflow would do; `--graph` as a Mermaid flowchart."""
    workflow = registry.get(options.workflow, options.version)
    if options.graph:
        text = plans.as_mermaid(workflow)
        return Report({"workflow": workflow.name, "version": workflow.version, "mermaid": text}, text.splitlines())
    return Report(plans.as_data(workflow), plans.as_lines(workflow))


def show_matrix(options: Namespace) -> Report:
    """What follows each failure: of one workflow, or whatever a workflow declares."""
    if options.workflow:
        workflow = registry.get(options.workflow, options.version)
        return Report(matrices.as_data(workflow), matrices.as_lines(workflow))
    parts = {"exceptions": matrix.exceptions, "failures": matrix.failures, "losses": matrix.losses}
    parts |= {"libraries": library_tables.rules, "http_answers": library_tables.answers, "effects": matrix.effects}
    return Report({name: part() for name, part in parts.items()}, matrix.page().splitlines())
