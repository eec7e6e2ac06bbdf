"""A real browser for tests: where Chromium is, people in it, and what they must never see.

Owns the life of Chromium and of each person's window. A person is logged in by the log-in page and has cookies of
their own. Whatever a page complains about (an error of the console, a broken policy, a script that fails, a dialog, a
file that is missing) is kept, and `Person.assert_quiet` fails the test with it.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    Response,
    sync_playwright,
)

# The first has no windows and starts a page in half the time.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    "These tests drive a real Chromium, and there is none: CHROMIUM names no program, and none of "
    f"{', '.join(PROGRAMS)} is on PATH. Install one (Debian: apt-get install chromium fonts-dejavu-core), name one by "
    "CHROMIUM, or leave the browser tests out on purpose: DURABLEFLOWS_SKIP_BROWSER=1."
)
# No sandbox of its own: tests run as root in containers, and visit no page but ours.
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
WAIT_MILLISECONDS = 10_000
DESK, PHONE = 1280, 360
HEIGHT = 900


class NoBrowser(Exception):
    """This machine has no Chromium; the message says what to do."""


def find_chromium() -> str:
    """The program to drive. Raises NoBrowser."""
    named = os.environ.get("CHROMIUM", "")
    for name in [named] if named else PROGRAMS:
        if found := shutil.which(name):
            return found
    raise NoBrowser(MISSING)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without windows, for as long as the block lasts."""
    program = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


class Person:
    """Somebody at the pages, in a window of their own. Options are those of Playwright's `new_context`."""

    def __init__(self, browser: Browser, url: str, name: str = "", **options: Any) -> None:
        self.name, self.url = name or "somebody", url
        self.complaints: list[str] = []
        self.has_session = True
        size = {"width": options.pop("width", DESK), "height": HEIGHT}
        self.context: BrowserContext = browser.new_context(base_url=url, viewport=size, locale="en-US", **options)  # type: ignore[arg-type]
        self.context.set_default_timeout(WAIT_MILLISECONDS)
        self.page = self.open_window()

    def open_window(self) -> Page:
        """Another window of the same person: same cookies, watched as the first."""
        page = self.context.new_page()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._complain(f"a script failed: {error}"))
        page.on("dialog", self._on_dialog)
        page.on("requestfailed", self._on_failed)
        page.on("response", self._on_response)
        return page

    def log_in(self, password: str) -> "Person":
        """Log in by the page."""
        self.page.goto("/login/")
        self.page.get_by_label("Username").fill(self.name)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("button", name="Log out").wait_for()
        return self

    def go(self, path: str) -> Page:
        """Open a page."""
        self.page.goto(path)
        return self.page

    def assert_quiet(self) -> None:
        """Fail with all that pages complained about."""
        assert not self.complaints, f"{self.name} at {self.page.url}: " + "; ".join(self.complaints)

    def expect_complaint(self, what: str) -> None:
        """Take back one complaint, by its words: the test has come for it. Fails when there is none."""
        assert what in self.complaints, f"no complaint {what!r}: {self.complaints}"
        self.complaints.remove(what)

    def lose_session(self) -> None:
        """Log out behind the pages' backs. What a page asks for by itself is answered 401 then, as it should be."""
        self.context.clear_cookies(name="sessionid")
        self.has_session = False

    def keep(self, folder: Path, name: str) -> list[Path]:
        """Keep what each window shows now: a picture, and its text."""
        kept = []
        for number, page in enumerate(self.context.pages):
            stem = folder / f"{name}-{self.name}-{number}"
            page.screenshot(path=f"{stem}.png", full_page=True)
            Path(f"{stem}.txt").write_text(f"{page.url}\n\n{page.locator('body').inner_text()}\n", encoding="utf-8")
            kept += [Path(f"{stem}.png"), Path(f"{stem}.txt")]
        return kept

    def close(self) -> None:
        """Close all windows."""
        self.context.close()

    def _complain(self, what: str) -> None:
        self.complaints.append(what)

    def _on_console(self, message: ConsoleMessage) -> None:
        # Chromium also notes each answer of 400 and more here; `_on_response` knows which of them are pages.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self._complain(f"console: {message.text}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self._complain(f"a dialog opened: {dialog.message}")
        dialog.dismiss()

    def _on_failed(self, request: Request) -> None:
        # Whoever clicks on takes back what is still on its way: the browser's doing, and no fault of a page.
        if request.failure != "net::ERR_ABORTED":
            self._complain(f"{request.url} could not be loaded: {request.failure}")

    def _on_response(self, response: Response) -> None:
        foreign = urlsplit(response.url).hostname != urlsplit(self.url).hostname
        if foreign and not response.url.startswith("data:"):
            self._complain(f"something was fetched from elsewhere: {response.url}")
        elif response.status == 401 and not self.has_session:
            return
        elif response.status >= 500 or (response.status >= 400 and not response.request.is_navigation_request()):
            self._complain(f"{response.url} was answered with {response.status}")


LoggedIn = dict[tuple[str, str], Any]
Kept = dict[tuple[str, str, int], Person]


class Visit:
    """Opens windows for people. Who has logged in once at an address has the same session there the next time."""

    def __init__(self, browser: Browser, password: str, logged_in: LoggedIn, kept: Kept) -> None:
        self.people: list[Person] = []
        self._browser, self._password, self._logged_in, self._kept = browser, password, logged_in, kept

    def __call__(self, url: str, name: str = "", **options: Any) -> Person:
        """Let somebody in; without a name nobody is logged in. Options are those of `Person`."""
        if name and (url, name) not in self._logged_in:
            first = self._open(url, name)
            self._logged_in[url, name] = first.log_in(self._password).context.storage_state()
            first.close()
            self.people.remove(first)
        return self._open(url, name, storage_state=self._logged_in.get((url, name)), **options)

    def _open(self, url: str, name: str, **options: Any) -> Person:
        person = Person(self._browser, url, name, **options)
        self.people.append(person)
        return person

    def look(self, url: str, name: str, *, width: int) -> Person:
        """The person's window of this width, the same for all that only look at pages: to open one takes its time."""
        key = (url, name, width)
        if key not in self._kept:
            self._kept[key] = self(url, name, width=width)
        person = self._kept[key]
        person.complaints.clear()
        if person not in self.people:
            self.people.append(person)
        return person

    def close(self) -> None:
        """Close what was opened, and keep what is kept."""
        for person in self.people:
            if person not in self._kept.values():
                person.close()
