"""The doors to a decision as a person with a browser goes through them: to the question, and what is pressed there.

The same doors by test client stand in `tests.support.doors`. A new one gets a class here and a line in DOORS.
"""

import re
from collections.abc import Mapping
from typing import Protocol

from playwright.sync_api import Page, expect

from customer_ops.mailbox.store import Store
from tests.support.browser import Person
from tests.support.browser_refunds import WAIT_SECONDS, Desk, ask, open_question, until_shown
from tests.support.workers import wait_for

INBOX = "/durableflows/inbox/"
REQUESTS = "/admin/durableflows/approvalrequest/"


class Door(Protocol):
    """`open` leads to the question about an order; there the buttons are called Approve and Reject at every door."""

    def open(self, desk: Desk, person: Person, order: str) -> Page:
        """Go to the question, as soon as it is asked."""


class AdminPage:
    """The decision page of the admin."""

    def open(self, desk: Desk, person: Person, order: str) -> Page:
        return open_question(person, order)


class SeveralAtOnce:
    """The admin's page for several, with one of them chosen in the list."""

    def open(self, desk: Desk, person: Person, order: str) -> Page:
        page = open_question(person, order)  # it is there now
        page.goto(REQUESTS)
        page.get_by_role("checkbox", name=re.compile(rf"\border {order}\b")).check()
        page.get_by_role("button", name="Answer the chosen ones").click()
        expect(page.locator("body")).to_contain_text("Your answer to 1 of them")
        return page


class InboxPage:
    """The decision page of the inbox."""

    def open(self, desk: Desk, person: Person, order: str) -> Page:
        page = person.go(INBOX)
        link = page.get_by_role("link", name=re.compile(rf"\border {order}\b"))
        until_shown(page, link, what=f"the question about order {order}")
        link.click()
        return page


class MailLink:
    """The inbox's page as the link in the person's own mail opens it."""

    def open(self, desk: Desk, person: Person, order: str) -> Page:
        links: list[str] = []

        def has_come() -> bool:
            for letter in Store(desk.shop.place.mailbox).letters():
                if person.name in letter.header("To") and re.search(rf"\border {order}\b", letter.subject):
                    links.extend(re.findall(r"https?://\S+/inbox/link/\S+", letter.text))
            return bool(links)

        wait_for(has_come, seconds=WAIT_SECONDS, what=f"the mail to {person.name} about order {order}")
        page = person.go(links[0])
        assert "/link/" not in page.url
        return page


DOORS: Mapping[str, Door] = {
    "admin page": AdminPage(),
    "admin, several at once": SeveralAtOnce(),
    "inbox": InboxPage(),
    "mail link": MailLink(),
}
"""By name."""


def asked_at(door: Door, desk: Desk, agent: Person, *people: Person) -> tuple[str, list[Page]]:
    """An order whose refund was asked for, and the question about it as each of the people has it open."""
    order = desk.take_order()
    ask(agent, order)
    return order, [door.open(desk, person, order) for person in people]
