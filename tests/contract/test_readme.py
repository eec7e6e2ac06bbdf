"""What README shows works: its workflow is declared as it stands there."""

import re
import sys
from types import ModuleType, SimpleNamespace

import pytest

from durableflows import Workflow
from durableflows.core import registry
from tests.contract.source import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
WORKFLOW, AROUND, START = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_workflow_is_declared_without_complaint(monkeypatch: pytest.MonkeyPatch):
    shop = ModuleType("shop")
    vars(shop).update(mail=SimpleNamespace(), payments=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "shop", shop)
    names: dict[str, object] = {"__name__": "readme"}

    with registry.isolated():
        exec(compile(AROUND + WORKFLOW, "README.md", "exec"), names)
        known = registry.known()

    workflow = names["Refund"]
    assert isinstance(workflow, type)
    assert issubclass(workflow, Workflow)
    assert known == (("refund", 1),)
    assert list(workflow.definition.steps) == ["assess", "sign_off", "pay", "tell"]


def test_the_start_is_python():
    compile(START, "README.md", "exec")


def test_the_two_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    for command in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "UPGRADING.md"])
def test_links_lead_somewhere(page: str):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))

    assert links
    assert not [link for link in links if not (ROOT / link).exists()]
