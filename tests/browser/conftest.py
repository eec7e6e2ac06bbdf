"""One browser and two shops for the folder: one with a worker for stories, one with ready rows for the grid of pages.

These tests come last. Playwright keeps an event loop running in this thread while the browser lives, and Django
refuses queries beside one: tests that query have had their turn by then, and these never query. They know what a person
can see, the payment provider's books and the mails that arrived.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.support.browser import Kept, LoggedIn, NoBrowser, Person, Visit, chromium
from tests.support.browser_grid import MAILS, STOCK, UNFOLD, Grid
from tests.support.browser_refunds import Desk
from tests.support.browser_shop import (
    MONITOR_TOKEN,
    PASSWORD,
    QUEUE,
    Shop,
    copied,
    database,
    other_web,
    running_outside,
)

SKIP_VARIABLE = "DURABLEFLOWS_SKIP_BROWSER"
PICTURES_VARIABLE = "DURABLEFLOWS_SCREENSHOTS"
HERE = Path(__file__).parent
IN_UNFOLD = {
    "DJANGO_SETTINGS_MODULE": "tests.unfold_customer_ops_settings",
    "CELERY_TASK_DEFAULT_QUEUE": f"{QUEUE}-of-nobody",  # the desk's worker does not know all of its workflows
}
# Times that a person at a test can wait for.
QUICK = {
    "PAYMENTS_TIMEOUT_SECONDS": "2",
    "PAYMENTS_SETTLE_SECONDS": "7",
    "DURABLEFLOWS_LOOKUP_SECONDS": "0.5",
    "DURABLEFLOWS_MONITOR_TOKEN": MONITOR_TOKEN,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    items[:] = [item for item in items if item not in set(ours)] + ours
    if os.environ.get(SKIP_VARIABLE) == "1":
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=f"{SKIP_VARIABLE}=1"))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """What a page complained about fails the test that visited it."""
    result = yield
    for person in _people_of(pyfuncitem):
        person.assert_quiet()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Keep what each person saw when a test failed, and print where."""
    report: Any = yield
    if report.when == "call" and report.failed and HERE in item.path.parents:
        kept = [path for person in _people_of(item) for path in person.keep(pictures(), _file_name(item))]
        report.sections.append(("what the browser showed", "\n".join(map(str, kept))))
    return report


def _people_of(item: Any) -> list[Person]:
    visit = item.funcargs.get("visit")
    return visit.people if visit is not None else []


def _file_name(item: pytest.Item) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in f"{item.path.stem}-{item.name}")


def pictures() -> Path:
    """The folder of pictures, for people to look at."""
    folder = Path(os.environ.get(PICTURES_VARIABLE) or Path(tempfile.gettempdir()) / "durableflows-browser")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def picture_folder() -> Path:
    return pictures()


@pytest.fixture(scope="session")
def wanted_pictures() -> Path | None:
    """Where each page of the grid is kept as a picture; None when nobody asked for that."""
    return pictures() if os.environ.get(PICTURES_VARIABLE) else None


@pytest.fixture(scope="session")
def logged_in() -> LoggedIn:
    return {}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        with chromium() as running:
            yield running
    except NoBrowser as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="session")
def kept_windows() -> Kept:
    return {}


@pytest.fixture
def visit(browser: Browser, logged_in: LoggedIn, kept_windows: Kept) -> Iterator[Visit]:
    """`visit(url, "agent", width=360)`: a window of the agent."""
    visit = Visit(browser, PASSWORD, logged_in, kept_windows)
    yield visit
    visit.close()


@pytest.fixture(scope="session")
def empty_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A payment provider, a mail server, and a migrated database that others are copied from."""
    with running_outside(tmp_path_factory.mktemp("shop")) as (place, sandbox), database("empty") as url:
        settings = {"DATABASE_URL": url, "BROWSER_PASSWORD": PASSWORD, "CELERY_TASK_DEFAULT_QUEUE": QUEUE, **QUICK}
        shop = Shop(replace(place, settings=settings), sandbox)
        shop.run("migrate", "--verbosity=0")
        yield shop


@pytest.fixture(scope="session")
def desk(empty_shop: Shop) -> Iterator[Desk]:
    """The desk as a deployment has it, with a worker, and orders for the stories."""
    with copied(empty_shop, "stories") as shop:
        made = shop.make_rows("stories")
        for child in [shop.begin_worker(), shop.begin_web()]:
            child.wait_until_ready()
        yield Desk(shop, made["charges"], made["leavers"])


@pytest.fixture(scope="session")
def grid(empty_shop: Shop) -> Iterator[Grid]:
    """Ready rows behind two admins: Django's own, and unfold with the workflows of `tests.browser_app` besides."""
    with copied(empty_shop, "grid") as shop:
        unfold = other_web(shop.place, IN_UNFOLD)
        made = Shop(unfold, shop.sandbox).make_rows("grid")
        for web in [shop.begin_web(), shop.begin_web(unfold)]:
            web.wait_until_ready()
        yield Grid({STOCK: shop.url, UNFOLD: unfold.url, MAILS: shop.place.mails_url}, made)


@pytest.fixture
def agent(visit: Visit, desk: Desk) -> Person:
    return visit(desk.url, "agent")


@pytest.fixture
def manager(visit: Visit, desk: Desk) -> Person:
    return visit(desk.url, "manager")


@pytest.fixture
def second(visit: Visit, desk: Desk) -> Person:
    """Another manager."""
    return visit(desk.url, "second")
