"""A state moves only by its machine. `queryset.update(state=…)` goes round it, and round the version and the lease."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.source import DOMAIN, ENGINE, modules, tree


def test_no_state_is_written_by_update_outside_the_models():
    found = [
        place
        for package in (ENGINE, DOMAIN)
        for name, path in modules(package).items()
        if not name.startswith((f"{ENGINE}.models", f"{DOMAIN}.models"))
        for place in updates_of_state(tree(path), path)
    ]

    assert not found, "\n".join(
        ["", *found, "Lock the row, call its transition, and save: see durableflows/progress.py."]
    )


@pytest.mark.parametrize(
    "text",
    [
        "rows.filter(pk=1).update(state='RUNNING')",
        "rows.update(\n    lease=None,\n    state=target,\n)",
        "rows.update(**{'state': 'RUNNING'})",
        "rows.bulk_update(many, ['state', 'lease'])",
        "rows.bulk_update(many, fields=('state',))",
        "rows.update_or_create(pk=1, defaults={'state': 'RUNNING'})",
    ],
)
def test_each_way_round_the_machine_is_seen(text: str):
    assert list(updates_of_state(ast.parse(text), Path("here")))


@pytest.mark.parametrize(
    "text",
    ["rows.filter(state='READY').update(sent_at=now)", "known.update(names)", "rows.bulk_update(many, ['lease'])"],
)
def test_what_leaves_the_state_alone_passes(text: str):
    assert not list(updates_of_state(ast.parse(text), Path("here")))


def test_rows_are_written_without_the_signals_of_a_save():
    """P11: their receivers are code of projects and of other apps, and rows are written under the engine's locks."""
    found = [
        f"{path}:{node.lineno}: {ast.unparse(node)[:100]}"
        for name, path in modules(ENGINE).items()
        if not name.startswith(f"{ENGINE}.testing")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and saves(node.func)
    ]

    assert not found, "\n".join(["", *found, "Use `insert` and `write` of durableflows/models/compiled.py."])


def saves(called: ast.Attribute) -> bool:
    """A file in a storage has no signals; a run that is removed has them, for rows of projects that refer to it."""
    is_meant = ast.unparse(called.value) in ("storage", "_storage()", "run")
    return called.attr in ("save", "create", "get_or_create", "update_or_create", "delete") and not is_meant


def updates_of_state(syntax: ast.Module, path: Path) -> Iterator[str]:
    """Calls that write a column named `state` without a transition."""
    for node in ast.walk(syntax):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and writes_state(node, node.func.attr):
            yield f"{path}:{node.lineno}: {ast.unparse(node)[:100]}"


def writes_state(call: ast.Call, method: str) -> bool:
    if method == "bulk_update":
        return "state" in strings_in([*call.args[1:], *(keyword.value for keyword in call.keywords)])
    if method == "update":
        unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
        return any(keyword.arg == "state" for keyword in call.keywords) or "state" in keys_in(unpacked)
    if method == "update_or_create":
        return "state" in keys_in([keyword.value for keyword in call.keywords if keyword.arg == "defaults"])
    return False


def strings_in(nodes: list[ast.expr]) -> set[object]:
    return {leaf.value for node in nodes for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)}


def keys_in(nodes: list[ast.expr]) -> set[object]:
    dicts = [node for node in nodes if isinstance(node, ast.Dict)]
    return {key.value for node in dicts for key in node.keys if isinstance(key, ast.Constant)}
