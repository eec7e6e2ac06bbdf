"""Two settings modules, one project: what the code reads is set in both."""

import ast

import pytest
from django.conf import global_settings, settings

from tests.contract.source import DOMAIN, modules, tree

READ = sorted(
    {
        node.attr
        for path in modules(DOMAIN).values()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "settings"
    }
)


@pytest.mark.parametrize("name", READ)
def test_what_customer_ops_reads_is_set_for_tests(name: str):
    assert hasattr(settings, name), f"add {name} to tests/settings.py"


@pytest.mark.parametrize("name", READ)
def test_what_customer_ops_reads_is_set_for_the_project(name: str):
    written = {node.id for node in ast.walk(tree(modules(DOMAIN)[f"{DOMAIN}.settings"])) if isinstance(node, ast.Name)}

    assert name in written or hasattr(global_settings, name)
