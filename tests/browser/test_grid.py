"""Every page on a desk and on a phone, in light and in dark, with Django's own admin and with unfold's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import DESK, PHONE, Visit
from tests.support.browser_checks import accessibility, hidden_focus, overflow
from tests.support.browser_grid import SIGHTS, Grid, Sight

NOT_OURS = {"stock": (".breadcrumbs", "#searchbar"), "unfold": ()}
"""Parts of the admins around our pages that axe-core complains about, and that no style of ours may touch."""


def cells() -> Iterator[object]:
    for sight in SIGHTS:
        for skin in sight.skins:
            for width in (DESK, PHONE):
                yield pytest.param(sight, skin, width, id=f"{sight.name}-{skin}-{width}")


@pytest.mark.parametrize(("sight", "skin", "width"), list(cells()))
def test_a_page_fits_is_accessible_and_shows_where_the_focus_is(
    visit: Visit, grid: Grid, picture_folder: Path, sight: Sight, skin: str, width: int
) -> None:
    person = visit(grid.urls[skin], sight.person, width=width, color_scheme="light")
    page = person.go(sight.path(grid.made))
    sight.act(page, grid.made)
    assert sight.says in page.locator("body").inner_text()

    findings = [*overflow(page), *accessibility(page, without=NOT_OURS[skin])]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=picture_folder / f"{sight.name}-{skin}-{width}-{scheme}.png", full_page=True)
        found = accessibility(page, without=NOT_OURS[skin], rules=["color-contrast"]) if scheme == "dark" else []
        if sight.focus:
            found += hidden_focus(page, within=sight.focus)
        findings += [f"{scheme}: {one}" for one in found]
    assert not findings, "\n".join(findings)
