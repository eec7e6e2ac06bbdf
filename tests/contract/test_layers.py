"""Imports go one way. Every import is walked, also those inside functions and for types only, where circles hide."""

import ast
import sys
from collections.abc import Iterator

import pytest

from tests.contract import layers
from tests.contract.source import DOMAIN, ENGINE, Import, imports, imports_of, modules, tree

TABLE = "tests/contract/layers.py"
PURE_LIBRARIES = {"pydantic", "pydantic_core", "typing_extensions"}
ORDER = [name for layer in layers.LAYERS.values() for name in layer]


def short(module: str) -> str:
    return module.removeprefix(ENGINE).removeprefix(".")


def is_ours(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def library(module: str) -> str:
    return module.partition(".")[0]


def engine_imports() -> list[Import]:
    """Imports within the engine, of modules that both stand in the table (others fail in a test of their own)."""
    inner = [one for one in imports(ENGINE) if is_ours(one.target, ENGINE)]
    return [one for one in inner if short(one.importer) in ORDER and short(one.target) in ORDER]


def report(lines: Iterator[str] | list[str], advice: str) -> str:
    return "\n".join(["", *lines, advice])


def test_every_module_has_its_place():
    missing = [f"{path} is in no layer" for name, path in modules(ENGINE).items() if short(name) not in ORDER]

    advice = f"Add its name to a layer in {TABLE}: below all that it imports, above all that imports it."
    assert not missing, report(missing, advice)


def test_every_module_has_one_place():
    assert sorted(ORDER) == sorted(set(ORDER))


def test_every_import_goes_down():
    wrong = [one for one in engine_imports() if ORDER.index(short(one.target)) >= ORDER.index(short(one.importer))]

    advice = f"A module imports only what stands before it in {TABLE}: move the code, or the line if no circle appears."
    assert not wrong, report(map(str, wrong), advice)


def test_every_import_names_a_module_that_exists():
    known = modules(ENGINE) | modules(DOMAIN)
    inner = [one for one in imports(ENGINE) + imports(DOMAIN) if library(one.target) in (ENGINE, DOMAIN)]

    assert not [str(one) for one in inner if one.target not in known]


def test_the_core_needs_neither_django_nor_any_service():
    pure = [one for one in imports(ENGINE) if short(one.importer) in layers.PURE and not is_ours(one.target, ENGINE)]
    allowed = PURE_LIBRARIES | sys.stdlib_module_names

    wrong = [str(one) for one in pure if library(one.target) not in allowed]
    assert not wrong, report(wrong, f"PURE modules import the standard library and {sorted(PURE_LIBRARIES)} only.")


def test_celery_stays_at_the_edges():
    celery = [one for one in imports(ENGINE) if library(one.target) in ("celery", "kombu")]

    wrong = [str(one) for one in celery if short(one.importer) not in layers.MAY_IMPORT_CELERY]
    assert not wrong, report(wrong, "Send through durableflows.dispatch; it alone speaks to the broker.")


def test_the_engine_knows_no_provider():
    wrong = [str(one) for one in imports(ENGINE) if library(one.target) in layers.NEVER_IN_ENGINE]

    assert not wrong, report(wrong, "Providers are reached by a project's own effects.")


def test_an_extra_is_imported_by_its_own_module_alone():
    wrong = [
        str(one)
        for one in imports(ENGINE)
        if short(one.importer) not in layers.ONLY_IN.get(library(one.target), (short(one.importer),))
    ]

    assert not wrong, report(wrong, "Extras are optional: nothing else may need them.")


def test_nothing_imports_a_watcher():
    """The setting names them."""
    wrong = [
        str(one)
        for one in imports(ENGINE)
        if short(one.target) in ("watchers.sentry", "watchers.opentelemetry")
        and not short(one.importer).startswith("watchers")
    ]

    assert not wrong, report(wrong, "WATCHERS names them by path; what is not named is not imported.")


def test_the_engine_does_not_know_its_first_user():
    wrong = [str(one) for one in imports(ENGINE) if library(one.target) == DOMAIN]

    assert not wrong, report(wrong, "durableflows never imports customer_ops.")


def test_the_first_user_enters_by_public_doors():
    inner = [one for one in imports(DOMAIN) if is_ours(one.target, ENGINE)]

    open_doors = [name for name in layers.PUBLIC if name not in layers.FOR_TESTS_ONLY]
    tested = {*open_doors, *layers.FOR_TESTS_ONLY}
    wrong = [
        str(one)
        for one in inner
        if short(one.target) not in (tested if one.importer in layers.TESTS_OF_PROJECT else open_doors)
    ]
    doors = ", ".join(f"{ENGINE}.{name}".rstrip(".") for name in open_doors)
    assert not wrong, report(wrong, f"customer_ops imports only {doors}.")


def test_celery_is_set_up_in_one_place():
    inner = [one for one in imports(DOMAIN) if one.target == f"{ENGINE}.celery"]

    wrong = [str(one) for one in inner if one.importer not in layers.SETS_CELERY_UP]
    assert not wrong, report(wrong, f"Only {', '.join(layers.SETS_CELERY_UP)} import {ENGINE}.celery.")


def test_stripe_is_used_by_its_client_only():
    wrong = [use for path in modules(DOMAIN).values() for use in stripe_uses(tree(path), str(path))]

    advice = "stripe's module-level API retries by itself and invents a key: use StripeClient, as the gateway does."
    assert not wrong, report(wrong, advice)


@pytest.mark.parametrize(
    "text",
    [
        "import stripe\nstripe.Refund.create(charge='ch_1')",
        "import stripe\nstripe.api_key = 'sk'",
        "import stripe as s\ndef pay():\n    s.Charge.create()",
        "from stripe import Refund",
        "from stripe._refund import Refund",
        "import stripe._refund",
    ],
)
def test_the_module_level_api_of_stripe_is_seen(text: str):
    assert list(stripe_uses(ast.parse(text), "here"))


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("def late():\n    from durableflows import clock", "durableflows.clock"),
        ("if TYPE_CHECKING:\n    from durableflows.models import WorkflowRun", "durableflows.models"),
        ("import durableflows.conf as c", "durableflows.conf"),
        ("from durableflows import Money", "durableflows"),
    ],
)
def test_imports_are_seen_wherever_they_stand(text: str, target: str):
    path = modules(ENGINE)[ENGINE]

    assert [one.target for one in imports_of("durableflows.x", path, ast.parse(text))] == [target]


def stripe_uses(syntax: ast.Module, path: str) -> Iterator[str]:
    """Where a file reaches for something of `stripe` that is not on the list."""
    nodes = list(ast.walk(syntax))
    aliases = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
        if library(alias.name) == "stripe"
    }
    for node in nodes:
        for name in stripe_names(node, aliases):
            if not is_allowed_of_stripe(name):
                yield f"{path}:{getattr(node, 'lineno', 0)}: {name} of stripe"


def stripe_names(node: ast.AST, aliases: set[str]) -> list[str]:
    """What one piece of syntax takes out of the package."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.startswith("stripe.")]
    if isinstance(node, ast.ImportFrom) and library(node.module or "") == "stripe":
        return [alias.name if node.module == "stripe" else f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
        return [node.attr]
    return []


def is_allowed_of_stripe(name: str) -> bool:
    return name in layers.STRIPE_ALLOWED or ("." not in name and name.endswith("Error"))
