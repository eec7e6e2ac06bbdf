"""Search all models and print what holds, after how many states, and the shortest way to what a dropped rule breaks.

python -m tests.model.check              what `make test` searches
python -m tests.model.check --deep       larger bounds too: some minutes
python -m tests.model.check redrive      one file's models
"""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests.model import children, endings, joins, redrive, signals, undoing
from tests.model.search import Model, search

MODULES: tuple[ModuleType, ...] = (joins, endings, redrive, children, signals, undoing)


@dataclass(frozen=True)
class Case:
    """One search. `breaks`: how the invariant begins that must break; '' when all must hold."""

    part: str
    title: str
    model: Model[Any]
    breaks: str = ""

    def __str__(self) -> str:
        return f"{self.part}: {self.title}"


def holding() -> Iterator[Case]:
    """The models with all their rules."""
    for module in MODULES:
        yield from _cases(module, module.HOLDS)


def deep() -> Iterator[Case]:
    """The same with larger bounds."""
    for module in MODULES:
        yield from _cases(module, module.DEEP)


def dropping() -> Iterator[Case]:
    """One rule dropped in each."""
    for module in MODULES:
        for title, (model, breaks) in module.DROPS.items():
            yield Case(_name(module), title, model, breaks)


def _cases(module: ModuleType, models: Mapping[str, Model[Any]]) -> Iterator[Case]:
    for title, model in models.items():
        yield Case(_name(module), title, model)


def _name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def show(case: Case) -> bool:
    """Search, print, and say whether it came out as it must."""
    began = time.monotonic()
    found = search(case.model)
    seconds = time.monotonic() - began
    is_right = found.broken.startswith(case.breaks) if case.breaks else not found.broken
    verdict = found.broken or "holds"
    mark = "" if is_right else "  <-- NOT AS IT MUST BE"
    print(f"{case!s:<78} {found.states:>8} states {seconds:5.1f} s  {verdict}{mark}", flush=True)
    if found.broken:
        print("    " + " | ".join(found.trace or ("from the start",)), flush=True)
    return is_right


def main(arguments: list[str]) -> int:
    """Search what the arguments name. Returns the exit code."""
    parts = [one for one in arguments if not one.startswith("-")]
    cases = [*holding(), *dropping(), *(deep() if "--deep" in arguments else ())]
    right = [show(case) for case in cases if not parts or case.part in parts]
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
