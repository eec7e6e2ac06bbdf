"""The reference pages that are printed from the code: which there are, and what each says.

Called by `manage.py durableflows graph --write-docs` and by the tests that compare docs/reference with the code.
Texts stand beside what they describe (docstrings, findings, hints); here is only the layout, and what to do about each
error. Needs the source files, so it is for this repository and not for an installed package.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise

from durableflows import (
    checks,
    checks_approvals,
    checks_celery,
    checks_effects,
    checks_notices,
    checks_pages,
    conf,
    errors,
)
from durableflows.boundaries import Boundary
from durableflows.core.states import EndingReason
from durableflows.doctor.findings import KNOWN, VERIFY_ONLY, Severity
from durableflows.management import graph, matrix, monitors
from durableflows.management.library_tables import table

CURES: Mapping[str, str] = {
    "error": "Catch it to catch all that durableflows raises on purpose.",
    "invalid_definition": "Change the declaration as the message says.",
    "unknown_workflow": "Import the module that declares it: `workflows.py` of an installed app is found by itself.",
    "invalid_state": "Look at `problems`: each is a path and a message.",
    "state_conflict": "Nothing: the step's body runs again on the fresh state, and its effects return their receipts.",
    "changed_outside": "Compare with a backup, then cancel the run.",
    "not_found": "Check the id, and whether the person may see the row.",
    "not_allowed": "Ask somebody who has the right; the requester never decides the own request.",
    "tenants_unknown": "Mend the callable that `TENANTS_OF` names: it returns None, or a collection of tenant names.",
    "too_late": "Read the row again; there is nothing to do any more, or not yet.",
    "already_decided": "Show who decided and when, as the message says.",
    "facts_changed": "Show the new facts and let the person decide again.",
    "key_conflict": "Use another key, or send the same request; for effects compute arguments from the state alone.",
    "concurrent_change": "Roll back and try again; the engine does so by itself.",
    "reserve_in_transaction": "Use effects in a step without `atomic=True`, outside of any transaction.",
    "limit_reached": "Raise the declared limit, or let the run end.",
    "step_failure": "Raise one of its kinds.",
    "transient": "Nothing: the step is tried again.",
    "never_sent": "Nothing: the step is tried again.",
    "permanent": "Declare `on_failure` when the run shall go on.",
    "unknown_outcome": "Nothing at first: the effect is sent again under its key, or looked up. See `explain`.",
    "key_in_use": "Nothing at first: as after an unknown outcome.",
    "already_done": "Nothing at first: the effect is looked up. Without a lookup a person decides, by `resolve`.",
    "needs_human": "Cure what the message names, then `retry`, or `cancel`.",
    "credentials_refused": "Give the project a key that the provider takes, then `provider NAME resume`: runs go on. "
    "One that met this outside an effect is parked: `retry`.",
    "control_flow": "Do not catch it in a step.",
    "lease_lost": "Nothing: another worker goes on.",
    "run_halted": "Nothing: the step ends here.",
    "effect_open": "Nothing: the step goes on when the effect is settled.",
}
CHECKS = (checks, checks_approvals, checks_celery, checks_effects, checks_notices, checks_pages)
"""The modules whose system checks are listed."""
WORDS_IN_ROWS: Mapping[str, str] = {
    "failed": "a step returned `fail(reason)`",
    "refused": "the recheck before the first send said no",
    "approval_lapsed": "an approval no longer counts: its facts or the right of who gave it have changed",
    EndingReason.CANCEL: "somebody asked for the end of the run",
    EndingReason.DEADLINE: "the run's deadline has passed",
    EndingReason.BUDGET: "a budget of the run is used up",
    EndingReason.COMPENSATE: "a step returned `compensate(reason)`, or somebody wanted undone what the run did",
    "undo_failed": "an undo could not go on: a person is needed, or its code has an error",
    "child_failed": "the run that a step had started and waited for did not succeed",
    "too_deep": "a run was to be started by a run that is itself too many runs deep",
    "abandoned": "somebody gave the run up; what was open of it has an heir",
}
SEVERITIES: Mapping[Severity, str] = {
    Severity.BROKEN: "a promise does not hold; the exit code is 1",
    Severity.DUE: "something is late, mostly because no ticker runs",
    Severity.ATTENTION: "a person should look",
}


def attribute_texts(cls: type) -> dict[str, str]:
    """Read the text that stands under each attribute of a class; `dataclass` and `Enum` forget it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    texts = {}
    for node, below in pairwise(tree.body):
        target = _target(node)
        if isinstance(target, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            texts[target.id] = " ".join(str(below.value.value).split())
    return texts


def _target(node: ast.stmt) -> ast.expr | None:
    if isinstance(node, ast.AnnAssign):
        return node.target
    return node.targets[0] if isinstance(node, ast.Assign) else None


def _page(title: str, source: str, *parts: str) -> str:
    note = f"Printed from `{source}` by `manage.py durableflows graph --write-docs`; do not edit."
    return "\n\n".join([f"# {title}", note, *parts]) + "\n"


def settings() -> str:
    """docs/reference/settings.md."""
    texts = attribute_texts(conf.Settings)
    defaults = conf.Settings()
    rows = [
        (f"`{one.name}`", _unit(one.name), f"`{getattr(defaults, one.name)!r}`", texts[one.name])
        for one in fields(conf.Settings)
    ]
    return _page(
        "Settings",
        "durableflows/conf.py",
        "One dict in the project's settings, read when it is used. Nothing needs to be set. A wrong key or value is "
        "refused by `manage.py check` ([checks.md](checks.md)).",
        '```python\nDURABLEFLOWS = {"STALE_SECONDS": 20, "AUDIT_SECONDS": 3600}\n```',
        table(("Key", "Unit", "Default", "Meaning"), rows),
    )


def _unit(name: str) -> str:
    units = {
        "_SECONDS": "seconds",
        "_BYTES": "bytes",
        "DATABASE": "alias",
        "_STORAGE": "alias",
        "TICKER": "True or False",
        "REFUSE_SECRETS": "True or False",
        "SECRETS": "dotted path",
        "_OF": "dotted path",
        "_KEYS": "dict of texts",
        "_LINKS": "dict of texts",
        "PROVIDERS": "dict of dicts",
        "_TOKEN": "text",
        "CLASSIFIERS": "list of dotted paths",
        "WATCHERS": "list of dotted paths",
        "NOTIFIERS": "list of dotted paths",
        "BASE_URL": "address",
    }
    return next(unit for end, unit in units.items() if name.endswith(end))


def error_classes(base: type[BaseException] = errors.DurableflowsError) -> Iterator[type[BaseException]]:
    """Walk the tree of errors from a base, parents first."""
    yield base
    for child in base.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from error_classes(child)


def error_page() -> str:
    """docs/reference/errors.md."""
    heads = ("Code", "Class", "Is a", "Meaning", "What to do")
    return _page(
        "Errors by code",
        "durableflows/errors.py",
        "A code is stable; texts may change. Rows keep code and text of an error, with secrets masked. The classes are "
        "in `durableflows` and in `durableflows.errors`.",
        "## For callers, and for step code to raise",
        table(heads, [_error(cls) for cls in error_classes()]),
        "## Control flow",
        "These end a step's body. They derive from `BaseException`, so that `except Exception` lets them pass.",
        table(heads, [_error(cls) for cls in error_classes(errors.ControlFlow)]),
        "## Codes in rows that are not exceptions",
        table(("Code", "Meaning"), [(f"`{code}`", text) for code, text in WORDS_IN_ROWS.items()]),
    )


def _error(cls: type[BaseException]) -> tuple[str, ...]:
    code = str(getattr(cls, "code", ""))
    parent = cls.__bases__[0].__name__
    meaning = " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split())
    return f"`{code}`", f"`{cls.__name__}`", f"`{parent}`", meaning, CURES[code]


def crash_points() -> str:
    """docs/reference/crash-points.md."""
    texts = attribute_texts(Boundary)
    rows = [(f"`{one.name}`", str(one), texts[one.name]) for one in Boundary]
    return _page(
        "Crash points",
        "durableflows/boundaries.py",
        "Each place where a process may die between two commits, and what the rows say then. Tests let it die at each "
        "one (`durableflows.testing.crash_at`) and prove that the run goes on, or waits for a person, and that nothing "
        "was done twice.",
        table(("Name", "Where", "What is true after a crash there"), rows),
        "A lease is freed by the ticker: at once when it sees the worker die, after `STALE_SECONDS` without a "
        "heartbeat, and in any case after the step's `timeout_seconds` and `LEASE_MARGIN_SECONDS`.",
    )


def check_ids() -> dict[str, tuple[str, str, str]]:
    """Read each system check from the source: id -> (severity, message, cure). Raises ValueError for an id of two."""
    found: dict[str, tuple[str, str, str]] = {}
    for module in CHECKS:
        more = _check_ids(ast.parse(inspect.getsource(module)))
        if twice := found.keys() & more.keys():
            raise ValueError(f"{', '.join(sorted(twice))}: an id of two checks, in {module.__name__} and before it")
        found |= more
    return dict(sorted(found.items()))


def _check_ids(tree: ast.Module) -> dict[str, tuple[str, str, str]]:
    texts = {
        node.lineno: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    found = {}
    for node in ast.walk(tree):
        given = {word.arg: word.value for word in node.keywords} if isinstance(node, ast.Call) else {}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "id" in given:
            hint = given["hint"]
            if isinstance(hint, ast.Name):  # the last one that was assigned above
                hint = texts[max(line for line in texts if line < node.lineno)]
            found[_text(given["id"])] = (node.func.attr, _text(node.args[0]), _text(hint))
    return found


def _text(node: ast.expr) -> str:
    """A text of the source, with … for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    assert isinstance(node, ast.Constant)
    return str(node.value)


def check_page() -> str:
    """docs/reference/checks.md."""
    rows = [(f"`{name}`", severity.lower(), text, cure) for name, (severity, text, cure) in check_ids().items()]
    return _page(
        "System checks",
        "durableflows/checks*.py",
        "Django runs them before a server or a command starts; `manage.py check` runs them alone. Mistakes in "
        "workflows are not here: they are errors when the module is imported.",
        table(("Id", "Kind", "What is wrong", "Cure"), rows),
    )


def doctor() -> str:
    """docs/reference/doctor.md."""
    parts = []
    for severity, text in SEVERITIES.items():
        codes = [code for code, (how_bad, _) in KNOWN.items() if how_bad is severity and code not in VERIFY_ONLY]
        parts += [f"## {severity.capitalize()}: {text}", _findings(codes)]
    return _page(
        "What doctor and verify find",
        "durableflows/doctor/findings.py",
        "`manage.py durableflows doctor [RUN]` proves the promises from the rows: states, waits, the ledger, budgets, "
        "and each run's seal and history. It reads only. Its exit code is 1 when something is broken, and with "
        "`--strict` when anything is found; `--json` is for programs.",
        *parts,
        "## Found by `verify`",
        "`manage.py durableflows verify [RUN]` proves the evidence alone, and all of it: what the doctor sees of seals "
        "and histories (`state-digest`, `key-gone`, `rolled-back`, `event-chain`), and what is too slow for a monitor "
        "that asks every minute. It opens each artifact. Its exit code is 1 when anything is found.",
        _findings([code for code in KNOWN if code in VERIFY_ONLY]),
    )


def _findings(codes: Sequence[str]) -> str:
    return table(("Finding", "Cure"), [(f"`{code}`", KNOWN[code][1]) for code in codes])


PAGES: Mapping[str, Callable[[], str]] = {
    graph.PAGE: graph.page,
    "docs/reference/settings.md": settings,
    "docs/reference/errors.md": error_page,
    "docs/reference/crash-points.md": crash_points,
    "docs/reference/retry-matrix.md": matrix.page,
    "docs/reference/checks.md": check_page,
    "docs/reference/doctor.md": doctor,
    monitors.PAGE: monitors.page,
}
"""Path in the repository -> what prints it."""
