"""The picture of README: `DURABLEFLOWS_PICTURE=docs/pictures/desk.png make test ARGS=tests/browser/test_picture.py`."""

import os
from pathlib import Path

from tests.support.browser import Visit
from tests.support.browser_grid import STOCK, Grid

MOST_BYTES = 200_000


def test_a_picture_of_the_desk_is_small_enough_for_a_readme(visit: Visit, grid: Grid, picture_folder: Path) -> None:
    picture = Path(os.environ.get("DURABLEFLOWS_PICTURE") or picture_folder / "desk.png")
    picture.parent.mkdir(parents=True, exist_ok=True)

    page = visit(grid.urls[STOCK], "agent", width=1280, color_scheme="light").go(
        f"/orders/{grid.made['found']['order']}/"
    )
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    page.screenshot(path=picture)

    assert picture.stat().st_size < MOST_BYTES
