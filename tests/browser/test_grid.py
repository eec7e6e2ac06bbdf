"""Every page on a desk and on a phone, in light and in dark, with Django's own admin and with unfold's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import DESK, PHONE, Visit
from tests.support.browser_checks import accessibility, hidden_focus, overflow
from tests.support.browser_grid import MAILS, SIGHTS, STOCK, UNFOLD, Grid, Sight

NOT_OURS = {STOCK: (".breadcrumbs", "#searchbar", ".small"), UNFOLD: (), MAILS: ()}
"""Parts of the admins around our pages that axe-core complains about, and that no style of ours may touch."""


def cells() -> Iterator[object]:
    for sight in SIGHTS:
        for skin in sight.skins:
            for width in (DESK, PHONE):
                yield pytest.param(sight, skin, width, id=f"{sight.name}-{skin}-{width}")


@pytest.mark.parametrize(("sight", "skin", "width"), list(cells()))
def test_a_page_fits_its_window_and_everybody(
    visit: Visit, grid: Grid, wanted_pictures: Path | None, sight: Sight, skin: str, width: int
) -> None:
    person, findings = visit.look(grid.urls[skin], sight.person, width=width), []
    for scheme in ("light", "dark"):
        page = person.page
        page.emulate_media(color_scheme=scheme)
        is_fresh = scheme == "light" or skin == UNFOLD  # unfold asks for the scheme once, when a page is loaded
        if is_fresh:
            person.go(sight.path(grid.made))
            sight.act(page, grid.made)
            if sight.error:
                person.expect_complaint(f"{page.url} was answered with {sight.error}")
        page.evaluate("() => document.getAnimations().forEach(one => one.finish())")  # from one scheme to the other
        assert sight.says in page.locator("body").inner_text()
        if wanted_pictures is not None:
            page.screenshot(path=wanted_pictures / f"{sight.name}-{skin}-{width}-{scheme}.png", full_page=True)
        # The order of a page's parts is the same in both schemes.
        rules = ["color-contrast"] if scheme == "dark" else []
        found = [*overflow(page), *accessibility(page, without=NOT_OURS[skin], rules=rules)]
        if sight.focus and is_fresh:  # Tab goes through a page once
            found += hidden_focus(page, within=sight.focus)
        findings += [f"{scheme}: {one}" for one in found]
    assert not findings, "\n".join(findings)
