"""`django_fsm` comes from django-fsm-2 or, in a host, from django-fsm 3.0.1: only what both have is used."""

import ast
from collections.abc import Iterator

import pytest

from tests.contract.source import DOMAIN, ENGINE, ROOT, modules, tree

# Public names of django-fsm 3.0.1 that django-fsm-2 4.2 has too. FSMModelMixin is left out: that of 3.0.1 keeps a stale
# state when a row is read again.
SHARED = {
    "ConcurrentTransition",
    "ConcurrentTransitionMixin",
    "FSMField",
    "FSMIntegerField",
    "FSMKeyField",
    "GET_STATE",
    "RETURN_VALUE",
    "TransitionNotAllowed",
    "can_proceed",
    "has_transition_perm",
    "signals",
    "transition",
}
SHARED_MODULES = {"django_fsm", "django_fsm.signals"}


def test_only_what_both_packages_have_is_used():
    files = [*modules(ENGINE).values(), *modules(DOMAIN).values()]
    wrong = [f"{path}: {name}" for path in files for name in names_of_fsm(tree(path)) if name not in SHARED]

    assert not wrong, "\n".join(["", *wrong, "A host may have the other package: see docs/decisions/dependencies.md."])


def test_migrations_name_neither_package():
    folders = [ROOT / package / "migrations" for package in (ENGINE, DOMAIN)]
    files = [path for folder in folders for path in folder.glob("0*.py")]

    assert files
    assert not [path for path in files if "django_fsm" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from django_fsm import ANY_STATE", "ANY_STATE"),
        ("from django_fsm.admin import FSMAdminMixin", "django_fsm.admin"),
        ("import django_fsm.admin", "django_fsm.admin"),
        ("from django_fsm.signals import pre_transition\nfrom django_fsm import ANY_STATE", "ANY_STATE"),
        ("import django_fsm as fsm\nx = fsm.ANY_OTHER_STATE", "ANY_OTHER_STATE"),
    ],
)
def test_what_only_one_package_has_is_seen(text: str, name: str):
    assert name in set(names_of_fsm(ast.parse(text))) - SHARED


def names_of_fsm(syntax: ast.Module) -> Iterator[str]:
    """What a file takes out of `django_fsm`: names of the package, and other modules of it by their full name."""
    aliases: set[str] = set()
    for node in ast.walk(syntax):
        if isinstance(node, ast.Import):
            ours = [alias for alias in node.names if alias.name.partition(".")[0] == "django_fsm"]
            aliases |= {alias.asname or "django_fsm" for alias in ours}
            yield from (alias.name for alias in ours if alias.name not in SHARED_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module == "django_fsm":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django_fsm."):
            yield from {str(node.module)} - SHARED_MODULES
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield node.attr
