"""Every line of the engine's logs is guarded: a module gets its logger from `core.log_lines`, never from `logging`."""

import ast

from tests.contract.source import ENGINE, modules, tree

MAY = ("durableflows.core.log_lines", "durableflows.testing")


def test_no_module_takes_a_logger_that_a_text_could_forge() -> None:
    """R28."""
    found = [
        f"{path}:{node.lineno}"
        for name, path in modules(ENGINE).items()
        if not name.startswith(MAY)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and node.attr in ("getLogger", "getChild", "root")
        if isinstance(node.value, ast.Name) and node.value.id == "logging"
    ]

    assert not found, "\n".join(["", *found, "log_lines.logger(name) makes what is logged one plain line"])
