"""What a page must be for people, checked in a real browser: nothing sticks out, axe-core is content, focus is seen.

Each check returns findings as sentences that name the element, and nothing when all is well. They look and press keys;
they change nothing that a person would see.
"""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

GRAVE = frozenset({"serious", "critical"})
MOST_STOPS = 300
INTERACTIVE = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']"


def overflow(page: Page) -> list[str]:
    """Name what makes the page wider than its window."""
    _name_elements(page)
    found: list[str] = page.evaluate(_script("overflow"))
    return found


def accessibility(page: Page, *, without: Sequence[str] = (), rules: Sequence[str] = ()) -> list[str]:
    """Name what axe-core calls serious or critical, contrast of colours included.

    without   selectors of what is not ours     rules   only these of axe's rules
    """
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_axe())
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = list(rules)
    context = {"exclude": [[selector] for selector in without]}
    result = page.evaluate("([context, options]) => axe.run(context, options)", [context, options])
    grave = [one for one in result["violations"] if one["impact"] in GRAVE]
    return [f"{one['id']} ({one['impact']}): {_node(node)}" for one in grave for node in one["nodes"][:5]]


def hidden_focus(page: Page, *, within: str = "body") -> list[str]:
    """Go through a part of the page by Tab; name what shows no sign of the focus, and what Tab never reaches.

    A sign is an outline, or a shadow that was not there before, on an element that lies in the window.
    """
    _name_elements(page)
    page.evaluate(_script("focus"), {"within": within, "inputs": INTERACTIVE})
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        if not page.evaluate("() => window.dfFocus.isInside()"):
            break
    found: list[str] = page.evaluate("() => window.dfFocus.findings()")
    return found


def awakened(page: Page) -> list[str]:
    """Name what of `browser_rows.HOSTILE` is more than text in this page."""
    found: list[str] = page.evaluate(_script("awakened"))
    return found


def _name_elements(page: Page) -> None:
    page.evaluate(_script("name"))


def _node(node: dict[str, Any]) -> str:
    checks = [*node["any"], *node["all"], *node["none"]]
    why = checks[0]["message"] if checks else node["html"]
    return f"{', '.join(map(str, node['target']))}: {why}"[:400]


@cache
def _script(name: str) -> str:
    return Path(__file__).with_name(f"browser_{name}.js").read_text(encoding="utf-8")


@cache
def _axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
