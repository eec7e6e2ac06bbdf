"""Reads our own packages as text: which modules there are, and what each imports. Nothing is imported, so a file that
cannot be loaded yet is judged too. For the tests in this folder only.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENGINE, DOMAIN = "durableflows", "customer_ops"


@dataclass(frozen=True)
class Import:
    """One name that a module imports, wherever in the file: at its top, in a function, or for types only."""

    importer: str
    target: str
    """The module it comes from, if that is one of ours: `from durableflows import clock` means `durableflows.clock`."""
    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.importer} imports {self.target}"


@cache
def modules(package: str) -> dict[str, Path]:
    """Dotted name -> file, of every module that is not a migration."""
    files = (path.relative_to(ROOT) for path in sorted((ROOT / package).rglob("*.py")))
    return {dotted(path): path for path in files if "migrations" not in path.parts}


def dotted(path: Path) -> str:
    """durableflows/core/money.py -> durableflows.core.money; a package's __init__.py is the package."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(path: Path) -> ast.Module:
    """The syntax of one of our files."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))


@cache
def imports(package: str) -> tuple[Import, ...]:
    """Every import of every module of a package."""
    return tuple(one for name, path in modules(package).items() for one in imports_of(name, path, tree(path)))


def imports_of(name: str, path: Path, syntax: ast.Module) -> Iterator[Import]:
    """Every import in one file."""
    for node in ast.walk(syntax):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, alias.name, path, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                yield Import(name, _source(node.module or "", alias.name), path, node.lineno)


def _source(module: str, name: str) -> str:
    """Of our own packages the module that is really loaded; of others the module that is named."""
    inner = f"{module}.{name}"
    known = modules(ENGINE) | modules(DOMAIN)
    return inner if inner in known else module
