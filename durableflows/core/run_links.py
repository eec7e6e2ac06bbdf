"""Addresses of what others keep about a run, made of what is known of it: its trace, its errors, its logs. Pure."""

import re
from collections.abc import Mapping
from string import Formatter
from urllib.parse import quote, urlsplit

NAMES = ("run", "workflow", "trace")
TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
"""W3C Trace Context, version 1: version, trace id, parent id, flags."""


def problems(address: str) -> list[str]:
    """Say in words why this is no template of an address."""
    try:
        fields = [(name, spec, turned) for _, name, spec, turned in Formatter().parse(address) if name is not None]
    except ValueError as error:
        return [f"{address!r}: {error}"]
    wrong = [name for name, spec, turned in fields if name not in NAMES or spec or turned]
    if wrong:
        return [f"{{{name}}} is not one of {', '.join(f'{{{known}}}' for known in NAMES)}" for name in wrong]
    if urlsplit(address).scheme not in ("http", "https"):
        return [f"{address!r} should begin with https:// or http://"]
    return []


def links(templates: Mapping[str, str], *, run: str, workflow: str, traceparent: object) -> list[tuple[str, str]]:
    """Words and address of each; those that need a trace only where there is one. Values are quoted."""
    trace = trace_id(traceparent)
    values = {"run": quote(run, safe=""), "workflow": quote(workflow, safe=""), "trace": trace}
    return [
        (words, address.format(**values)) for words, address in templates.items() if trace or "{trace}" not in address
    ]


def trace_id(traceparent: object) -> str:
    """The trace's id of a `traceparent`; '' where that is none."""
    found = TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    return found[1] if found else ""
