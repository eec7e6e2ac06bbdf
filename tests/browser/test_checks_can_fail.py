"""Each check of the grid finds the fault that it is for: one is put into a good page, and named."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.support.browser import Person, Visit
from tests.support.browser_checks import accessibility, awakened, hidden_focus, overflow
from tests.support.browser_grid import STOCK, Grid
from tests.support.workers import wait_for

# What is put into <main> of a good page. Styles are set by script, where the page's policy lets them be.
BUTTON = "const one = document.createElement('button'); one.textContent = 'Fault'; main.prepend(one);"
WIDE = "main => { main.innerHTML = '<p id=fault>x</p>'; main.firstChild.style.width = '2000px'; }"
PALE = "main => { main.querySelector('h1').style.color = '#bbbbbb'; main.style.background = '#ffffff'; }"
UNNAMED = "main => { main.append(document.createElement('input')); }"
BLIND = f"main => {{ {BUTTON} one.style.outline = 'none'; }}"
AWAY = f"main => {{ {BUTTON} one.style.position = 'fixed'; one.style.left = '-900px'; }}"
TRAP = "main => main.querySelector('a, input').addEventListener('focus', event => event.target.blur())"
ALIVE = "main => { main.insertAdjacentHTML('beforeend', '<p onerror=1>x</p>'); }"
LINKED = "main => { main.insertAdjacentHTML('beforeend', '<a href=\"javascript:void(0)\">x</a>'); }"
TURNED = "main => { main.insertAdjacentHTML('beforeend', '<p>\u202ex</p>'); }"
RAN = "() => { window.hostile = 1; }"
INLINE = "() => { const one = document.createElement('script'); one.text = '1'; document.body.append(one); }"


@pytest.fixture
def person(visit: Visit, grid: Grid) -> Person:
    person = visit(grid.urls[STOCK], "agent", width=360, color_scheme="light")
    person.go("/?q=R-2001")
    return person


@pytest.fixture
def page(person: Person) -> Page:
    return person.page


def test_a_good_page_has_no_findings(page: Page) -> None:
    assert [*overflow(page), *accessibility(page), *hidden_focus(page), *awakened(page)] == []


@pytest.mark.parametrize(
    ("fault", "check", "named"),
    [
        (WIDE, overflow, 'p#fault "x" ends at'),
        (PALE, accessibility, "color-contrast (serious): h1"),
        (UNNAMED, accessibility, "label (critical)"),
        (BLIND, hidden_focus, 'button "Fault" shows no sign of the focus'),
        (AWAY, hidden_focus, 'button "Fault" has the focus outside of the window'),
        (TRAP, hidden_focus, "is never reached by Tab"),
        (ALIVE, awakened, "it became an element"),
        (RAN, awakened, "a script of it ran"),
        (LINKED, awakened, "it became an address"),
        (TURNED, awakened, "it turns round what follows"),
    ],
)
def test_a_fault_is_named(person: Person, fault: str, check: Callable[[Page], list[str]], named: str) -> None:
    person.page.locator("main").evaluate(fault)

    found = check(person.page)

    assert any(named in one for one in found), found
    person.complaints.clear()  # the page's policy complains about some of these faults, and is right


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("() => { setTimeout(() => { throw new Error('a fault') }); }", "a script failed: a fault"),
        ("() => { console.error('a fault'); }", "console: a fault"),
        (INLINE, "Content"),
        ("() => { setTimeout(() => alert('a fault')); }", "a dialog opened: a fault"),
        ("() => { const one = new Image(); one.src = '/none.png'; }", "/none.png was answered with 404"),
    ],
)
def test_a_complaint_is_kept(person: Person, fault: str, complaint: str) -> None:
    person.page.evaluate(fault)

    def is_kept() -> bool:
        person.page.evaluate("() => 1")  # lets Playwright hand over what has happened
        return any(complaint in one for one in person.complaints)

    assert wait_for(is_kept, seconds=30, what=f"the complaint {complaint!r} in {person.complaints}")
    person.complaints.clear()
