"""Each page of the runbook is played by a test, each command of it is run, and what it names exists."""

import ast
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from django.urls import resolve

from durableflows.doctor.findings import KNOWN
from durableflows.reading.runs import CHOICES, FIELDS
from tests.contract.source import ROOT
from tests.support import runbook

CASES = (
    *("stuck-run", "in-doubt", "provider-down", "redis-lost", "postgresql-fail-over", "bad-deploy", "wrong-approval"),
    *("poison-step", "key-rotation"),
)
PARTS = ("How you notice", "Where to look", "What to do", "What is safe", "When it is over")
PAGES = pytest.mark.parametrize("page", runbook.pages(), ids=lambda page: page.stem)
ALERTS = ROOT / "docs" / "operations" / "alerts.yml"


def played() -> list[tuple[str, str]]:
    """Page and block of each test that is marked with one."""
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        if f"@{runbook.plays}(" in text:
            found += [mark for node in ast.walk(ast.parse(text)) if (mark := _mark(node)) is not None]
    return found


def _mark(node: ast.AST) -> tuple[str, str] | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != runbook.plays:
        return None
    page, name = map(ast.literal_eval, node.args)
    return page, name


def test_the_nine_cases_have_a_page_each_and_the_index_names_them():
    index = (runbook.FOLDER / "runbook.md").read_text("utf-8")

    assert [name for name in CASES if f"({name}.md)" not in index] == []
    assert {page.stem for page in runbook.pages()} == {*CASES, "runbook", "act-on-runs", "remove-old-runs"}


@pytest.mark.parametrize("name", CASES)
def test_a_case_says_how_you_notice_where_to_look_what_to_do_what_is_safe_and_when_it_is_over(name: str):
    heads = re.findall(r"^## (.+)$", (runbook.FOLDER / f"{name}.md").read_text("utf-8"), re.MULTILINE)

    assert tuple(heads) == PARTS


def test_each_block_of_each_page_is_played_by_a_test():
    """S2.41: a page without a test fails here; a command that its test does not run fails there."""
    written = [(block.page, block.name) for page in runbook.pages() for block in runbook.blocks(page)]
    marked = played()

    assert len(written) == len(set(written))
    assert [one for one in written if one not in marked] == []
    assert [one for one in marked if one not in written] == []
    assert {page for page, _ in written} == {page.stem for page in runbook.pages()}


@PAGES
def test_no_command_stands_where_no_test_runs_it(page: Path):
    assert runbook.unmarked(page) == 0
    assert runbook.outside_of_blocks(page) == []
    assert [
        line for block in runbook.blocks(page) for line in block.commands if not line.startswith("manage.py ")
    ] == []


@PAGES
def test_alerts_findings_and_addresses_that_a_page_names_exist(page: Path):
    text = page.read_text("utf-8")
    alerts = set(re.findall(r"alert: (\w+)", ALERTS.read_text("utf-8")))

    assert set(re.findall(r"`(Durableflows\w+)`", text)) <= alerts
    for codes in re.findall(r"[Tt]he doctor (?:says|has no|may say) ((?:`[a-z-]+`(?:, | or |, or )?)+)", text):
        assert set(re.findall(r"`([a-z-]+)`", codes)) <= set(KNOWN)
    for address in re.findall(r"`(/durableflows/[^`]*)`", text):
        seen = urlsplit(address)
        assert resolve(seen.path).app_name == "durableflows"
        asked = parse_qs(seen.query)
        assert set(asked) <= {"show", *FIELDS}
        assert set(asked.get("show", [])) <= set(CHOICES)


def test_each_case_is_told_by_an_alert_or_a_finding_and_each_alert_names_its_page():
    text = ALERTS.read_text("utf-8")
    for name in CASES:
        first = (runbook.FOLDER / f"{name}.md").read_text("utf-8").partition("## Where to look")[0]
        assert re.search(r"`Durableflows\w+`", first) or any(f"`{code}`" in first for code in KNOWN), name

    assert len(re.findall(r"alert: ", text)) == len(re.findall(r"runbook: ", text))
    assert all((ROOT / path).exists() for path in re.findall(r"runbook: (\S+)", text))
