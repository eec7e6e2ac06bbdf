"""R29 in a browser: whatever log-in is told to go to next, people stay on this site."""

from urllib.parse import quote, urlsplit

import pytest

from tests.support.browser import Visit
from tests.support.browser_grid import STOCK, Grid
from tests.support.browser_shop import PASSWORD

ELSEWHERE = {
    "absolute": "https://other.example",
    "two slashes": "//other.example",
    "three slashes": "///other.example",
    "slash and backslash": "/\\other.example",
    "scheme without slashes": "http:other.example",
    "script": "javascript:document.title='hostile'",
    "our host as a name": "https://{host}@other.example",
    "line break": "/\r\nLocation: https://other.example",
    "encoded twice": "%252F%252Fother.example",
    "tab inside": "/\t/other.example",
}


@pytest.mark.parametrize("door", ["/login/", "/admin/login/"])
@pytest.mark.parametrize("case", ELSEWHERE)
def test_log_in_leads_nowhere_else(visit: Visit, grid: Grid, door: str, case: str) -> None:
    """R29."""
    url = grid.urls[STOCK]
    person = visit(url)
    aim = ELSEWHERE[case].format(host=urlsplit(url).netloc)

    person.page.goto(f"{door}?next={quote(aim, safe='')}")
    person.page.locator("[name=username]").fill("admin")
    person.page.locator("[name=password]").fill(PASSWORD)
    person.page.locator("[name=password]").press("Enter")
    person.page.wait_for_url(lambda now: not urlsplit(now).path.endswith("/login/"))

    assert urlsplit(person.page.url).netloc == urlsplit(url).netloc
    assert "hostile" not in person.page.title()


@pytest.mark.parametrize("case", ELSEWHERE)
def test_somebody_who_is_logged_in_is_led_nowhere_else(visit: Visit, grid: Grid, case: str) -> None:
    """R29."""
    url = grid.urls[STOCK]
    person = visit(url, "agent")

    person.go(f"/login/?next={quote(ELSEWHERE[case].format(host=urlsplit(url).netloc), safe='')}")

    assert urlsplit(person.page.url).netloc == urlsplit(url).netloc


def test_a_page_of_this_site_is_where_log_in_leads(visit: Visit, grid: Grid) -> None:
    """R29."""
    person = visit(grid.urls[STOCK])

    person.page.goto("/orders/R-2001/?seen=1")
    person.page.get_by_label("Username").fill("agent")
    person.page.get_by_label("Password").fill(PASSWORD)
    person.page.get_by_role("button", name="Log in").click()
    person.page.get_by_role("button", name="Log out").wait_for()

    assert person.page.url == f"{grid.urls[STOCK]}/orders/R-2001/?seen=1"
