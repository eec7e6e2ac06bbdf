"""The list of guards is about the code as it is: each text stands there once, each finder exists, the page says so."""

import ast
import re
import shlex
from collections import Counter
from functools import cache

import pytest

from durableflows.testing.faults import parse
from tests.contract.source import ROOT
from tests.guards import page
from tests.guards.listed import BY_NAME, GUARDS, changes_of
from tests.guards.values import ENGINE, SIMULATION, Guard


@cache
def source(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def test_the_page_is_current():
    assert source(page.PAGE) == page.page(), "run `python -m tests.guards --write`"


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_what_is_dropped_stands_there_once_and_leaves_code(guard: Guard):
    changed: dict[str, str] = {}
    for change in changes_of(guard):
        text = changed.get(change.file, source(ENGINE + change.file))
        assert text.count(change.text) == 1, f"{change.file}: {change.text!r}"
        changed[change.file] = text.replace(change.text, change.instead)

    for file, text in changed.items():
        assert text != source(ENGINE + file)
        compile(text, file, "exec")


@pytest.mark.parametrize("finder", sorted({guard.found_by for guard in GUARDS}))
def test_who_finds_it_is_there(finder: str):
    if finder.startswith(SIMULATION):
        words = shlex.split(finder)
        assert f"def {words[1]}(" in source("customer_ops/faulttests.py")
        assert words[2] == "--replay"
        parse(words[3])
    else:
        path, _, test = finder.partition("::")
        names = {node.name for node in ast.walk(ast.parse(source(path))) if isinstance(node, ast.FunctionDef)}
        assert not test or test.partition("[")[0] in names


def test_names_are_unique_and_covers_are_guards():
    assert [name for name, times in Counter(guard.name for guard in GUARDS).items() if times > 1] == []
    assert {guard.covered_by for guard in GUARDS if guard.covered_by} <= BY_NAME.keys()
    assert not [guard.name for guard in GUARDS if guard.covered_by == guard.name]


def test_every_promise_and_every_rule_of_the_protocol_has_a_guard():
    named = [re.sub(r"^rules? ", "rule ", part) for guard in GUARDS for part in guard.rests.split(", ")]
    spelled = {f"rule {number}" for part in named if "rule" in part for number in re.findall(r"\d+", part)}

    assert {*spelled, *(part for part in named if "rule" not in part)} == page.PROMISES.keys()
