"""`python -m tests.support.bare_celery` is `celery` without what others hang on its command line: Flower, and a shell.

They have no part in a worker, and take a sixth of the time in which one starts. Nothing else differs.
"""

import sys
from importlib import metadata
from types import ModuleType
from typing import Any


def main() -> None:
    """Run Celery's own command."""
    shell: Any = ModuleType("click_repl")
    shell.register_repl = lambda group: None
    sys.modules["click_repl"] = shell
    entry_points = metadata.entry_points
    metadata.entry_points = lambda **given: [] if given == {"group": "celery.commands"} else entry_points(**given)  # type: ignore[assignment]
    from celery.__main__ import main as celery

    celery()


if __name__ == "__main__":
    main()
