"""R28 in a browser: what customers, agents, managers and the provider wrote is shown, and none of it comes to life."""

import json

import pytest

from tests.support.browser import Visit
from tests.support.browser_checks import awakened
from tests.support.browser_grid import SIGHTS, STOCK, Grid, Sight
from tests.support.browser_rows import HOSTILE_NUMBER

UNFOLD_ALL = "body => body.querySelectorAll('details').forEach(one => { one.open = true; })"
LISTS = ("orders", "questions")
HOSTILE_SIGHTS = [one for one in SIGHTS if one.name.endswith("-hostile") or one.name in LISTS]
CELLS = [pytest.param(sight, skin, id=f"{sight.name}-{skin}") for sight in HOSTILE_SIGHTS for skin in sight.skins]


@pytest.mark.parametrize(("sight", "skin"), CELLS)
def test_hostile_text_is_shown_and_stays_text(visit: Visit, grid: Grid, sight: Sight, skin: str) -> None:
    """R28."""
    person = visit(grid.urls[skin], sight.person)

    page = person.go(sight.path(grid.made))
    sight.act(page, grid.made)

    page.locator("body").evaluate(UNFOLD_ALL)
    text = page.locator("body").inner_text()
    if not sight.name.startswith("console-"):  # they name requests, not orders
        assert HOSTILE_NUMBER in text
    if sight.name.endswith("-hostile"):
        assert "<script>window.hostile=1</script>" in text
    if "{{" in text:
        assert "{{ 7|add:7 }}" in text
    assert awakened(page) == []


def test_facts_that_a_page_carries_along_stay_valid(visit: Visit, grid: Grid) -> None:
    """R28: the shown facts are JSON in a hidden field, and arrive as they were."""
    sight = next(one for one in SIGHTS if one.name == "question-hostile")

    page = visit(grid.urls[STOCK], "manager").go(sight.path(grid.made))

    shown = json.loads(page.locator("[name=shown]").input_value())
    assert shown["order"] == grid.made["hostile"]["order"]
