"""What people do at the desk, by the pages alone, and what is true outside of it: the provider's books, the mails.

A story is believed by what a person sees and by these two; rows are not looked at.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from playwright.sync_api import Locator, Page, expect

from customer_ops.mailbox.letter import Letter
from customer_ops.mailbox.store import Store
from tests.support.browser import Person
from tests.support.browser_shop import Shop
from tests.support.workers import wait_for

WAIT_SECONDS = 30.0
STAFF = "@desk.test"
"""How addresses of those who work here end."""
AMOUNT = 600
"""Dollars that a story asks for: above the limit, so that a manager is asked."""


class Desk:
    """A running desk, and orders of 900 dollars that no story has touched."""

    def __init__(self, shop: Shop, charges: Mapping[str, str], leavers: Sequence[str] = ()) -> None:
        self.shop, self.charges = shop, charges
        self._untouched, self._leavers = iter(charges), iter(leavers)

    @property
    def url(self) -> str:
        """The address of the pages."""
        return self.shop.url

    def take_order(self) -> str:
        """The number of an order for one story alone."""
        return next(self._untouched)

    def take_leaver(self) -> str:
        """The name of a manager who loses the account, or the right, in one story alone."""
        return next(self._leavers)

    def paid_back(self, order: str) -> list[int]:
        """Each time the provider gave money of the order's charge back, in dollars."""
        acts = self.shop.sandbox.books().refund_acts
        return [act["amount"] // 100 for act in acts if act["charge"] == self.charges[order]]

    def mails(self, order: str) -> list[Letter]:
        """The mails about an order that its customer has got. Managers are told too, when they have not decided yet."""
        letters = Store(self.shop.place.mailbox).letters()
        told = [letter for letter in letters if not letter.recipients[0].endswith(STAFF)]
        return [letter for letter in told if letter.subject.split(" order ")[-1].split(" ")[0] == order]

    def wait_for_mail(self, order: str) -> Letter:
        """The only mail to the customer about an order, once it has arrived."""
        wait_for(lambda: self.mails(order), seconds=WAIT_SECONDS, what=f"a mail about order {order}")
        (mail,) = self.mails(order)
        return mail


def ask(agent: Person, order: str, *, dollars: int = AMOUNT, reason: str = "It came broken.") -> None:
    """Find the order in the list, fill in its form and send it."""
    page = agent.go("/")
    page.get_by_role("searchbox").fill(order)
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name=order, exact=True).click()
    page.get_by_label("A part").check()
    amount_field(page).fill(str(dollars))
    page.get_by_label("Reason").fill(reason)
    refund_button(page).click()
    expect(badge(page)).to_have_text(re.compile("^(under way|waiting for a manager)$"))


def amount_field(page: Page) -> Locator:
    """Where an agent types how much."""
    return page.get_by_label(re.compile("^Amount"))


def refund_button(page: Page) -> Locator:
    """What sends the refund form."""
    return page.get_by_role("button", name="Refund", exact=True)


def badge(page: Page) -> Locator:
    """The word for where the order's only refund stands."""
    return page.locator("[id^=refund-] h3 .co-badge")


def watch(page: Page, word: str) -> None:
    """Watch an order's open page keep itself up to date until its refund stands at this word."""
    expect(badge(page)).to_have_text(word, timeout=WAIT_SECONDS * 1000)


def see(page: Page, word: str) -> None:
    """Load an order's page anew and watch it, as somebody who does not want to wait for its next look."""
    page.reload()
    watch(page, word)


def open_question(manager: Person, order: str) -> Page:
    """Go from the admin's first page to the question about an order, as soon as it is asked."""
    page = manager.go("/admin/")
    page.get_by_role("link", name="Approval requests").first.click()
    link = page.get_by_role("link", name=re.compile(rf"\border {order}\b"))
    until_shown(page, link, what=f"the question about order {order}")
    link.click()
    return page


def until_shown(page: Page, what_is_waited_for: Locator, *, what: str) -> None:
    """Load the page anew until something stands on it."""
    _reload_until(page, lambda: what_is_waited_for.count() > 0, what=what)


def decide(page: Page, verdict: str, *, comment: str = "") -> None:
    """Answer the open question."""
    page.get_by_label(re.compile("^Comment")).fill(comment)
    page.get_by_role("button", name=verdict).click()


def reload_until(page: Page, word: str) -> None:
    """Load an order's page anew until its refund stands at this word: what people do without JavaScript."""
    _reload_until(page, lambda: badge(page).inner_text() == word, what=f"{page.url} to say {word!r}")


def _reload_until(page: Page, fact: Callable[[], bool], *, what: str) -> None:
    def look() -> bool:
        if fact():
            return True
        page.reload()
        return fact()

    wait_for(look, seconds=WAIT_SECONDS, what=what)
