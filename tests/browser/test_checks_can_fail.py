"""Each check of the grid finds the fault that it is for: one is put into a good page, and named."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.support.browser import Visit
from tests.support.browser_checks import accessibility, awakened, hidden_focus, overflow
from tests.support.browser_grid import STOCK, Grid
from tests.support.workers import wait_for

WIDE = "main => { const box = document.createElement('div'); box.id = 'fault'; box.style.width = '2000px'; main.append(box, 'x'); }"
PALE = "main => { main.querySelector('h1').style.color = '#bbbbbb'; main.style.background = '#ffffff'; }"
UNNAMED = "main => { main.append(document.createElement('input')); }"
BLIND = "main => { const one = document.createElement('button'); one.textContent = 'Fault'; one.style.outline = 'none'; main.prepend(one); }"
AWAY = "main => { const one = document.createElement('button'); one.textContent = 'Fault'; one.style.position = 'fixed'; one.style.left = '-900px'; main.prepend(one); }"
TRAP = "main => main.querySelector('a, input').addEventListener('focus', event => event.target.blur())"
ALIVE = "main => { main.insertAdjacentHTML('beforeend', '<img src=x alt=\"\">'); }"
LINKED = "main => { main.insertAdjacentHTML('beforeend', '<a href=\"javascript:void(0)\">x</a>'); }"
TURNED = "main => { main.insertAdjacentHTML('beforeend', '<p>\u202ex</p>'); }"


@pytest.fixture
def page(visit: Visit, grid: Grid) -> Page:
    return visit(grid.urls[STOCK], "agent", width=360, color_scheme="light").go("/?q=R-2001")


def test_a_good_page_has_no_findings(page: Page) -> None:
    assert [*overflow(page), *accessibility(page), *hidden_focus(page), *awakened(page)] == []


@pytest.mark.parametrize(
    ("fault", "check", "named"),
    [
        (WIDE, overflow, "div#fault ends at"),
        (PALE, accessibility, "color-contrast (serious): h1"),
        (UNNAMED, accessibility, "label (critical)"),
        (BLIND, hidden_focus, 'button "Fault" shows no sign of the focus'),
        (AWAY, hidden_focus, 'button "Fault" has the focus outside of the window'),
        (TRAP, hidden_focus, "is never reached by Tab"),
        (ALIVE, awakened, "it became an element"),
        (LINKED, awakened, "it became an address"),
        (TURNED, awakened, "it turns round what follows"),
    ],
)
def test_a_fault_is_named(page: Page, fault: str, check: Callable[[Page], list[str]], named: str) -> None:
    page.locator("main").evaluate(fault)

    assert any(named in one for one in check(page)), check(page)


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("() => { setTimeout(() => { throw new Error('a fault') }); }", "a script failed: a fault"),
        ("() => { console.error('a fault'); }", "console: a fault"),
        (
            "() => { const one = document.createElement('script'); one.text = '1'; document.body.append(one); }",
            "Content",
        ),
        ("() => { setTimeout(() => alert('a fault')); }", "a dialog opened: a fault"),
        ("() => { const one = new Image(); one.src = '/none.png'; }", "/none.png was answered with 404"),
    ],
)
def test_a_complaint_is_kept(visit: Visit, grid: Grid, fault: str, complaint: str) -> None:
    person = visit(grid.urls[STOCK], "agent")
    page = person.go("/")

    page.evaluate(fault)

    def is_kept() -> bool:
        page.evaluate("() => 1")  # lets Playwright hand over what has happened
        return any(complaint in one for one in person.complaints)

    wait_for(is_kept, seconds=10, what=f"the complaint {complaint!r} in {person.complaints}")
    person.complaints.clear()
