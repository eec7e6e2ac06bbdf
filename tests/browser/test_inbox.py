"""The inbox: decided by keyboard, without JavaScript, and kept up to date while somebody looks."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.test_by_keyboard import tab_to
from tests.support.browser import Person, Visit
from tests.support.browser_refunds import AMOUNT, WAIT_SECONDS, Desk, ask, decide, reload_until, watch
from tests.support.browser_shop import PASSWORD
from tests.support.workers import wait_for

INBOX = "/durableflows/inbox/"


def link_to(page: Page, order: str) -> Locator:
    return page.get_by_role("link", name=re.compile(rf"\border {order}\b"))


def open_in_inbox(manager: Person, order: str) -> Page:
    """Open the inbox, and load it anew until the question about an order is there."""
    page = manager.go(INBOX)

    def look() -> bool:
        page.reload()
        return link_to(page, order).count() > 0

    wait_for(look, seconds=WAIT_SECONDS, what=f"the question about order {order}")
    return page


def test_a_refund_is_approved_in_the_inbox_by_keyboard(desk: Desk, agent: Person, manager: Person) -> None:
    first, order = desk.take_order(), desk.take_order()
    ask(agent, first)
    open_in_inbox(manager, first)
    ask(agent, order)
    page = open_in_inbox(manager, order)

    rows = page.locator("[data-df-keys] a[href]")
    tab_to(page, rows.first)
    page.keyboard.press("End")
    expect(rows.last).to_be_focused()
    page.keyboard.press("Home")
    while not link_to(page, order).evaluate("element => element === document.activeElement"):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Your answer")).to_be_visible()
    tab_to(page, page.get_by_label(re.compile("^Comment")))
    page.keyboard.type("Seen the photo.")
    tab_to(page, page.get_by_role("button", name="Approve"))
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name="You approved this")).to_be_visible()
    watch(agent.page, "refunded")
    assert desk.paid_back(order) == [AMOUNT]


def test_a_refund_is_approved_in_the_inbox_without_javascript(desk: Desk, visit: Visit) -> None:
    order = desk.take_order()
    agent = visit(desk.url, "agent", java_script_enabled=False)
    manager = visit(desk.url, "manager", java_script_enabled=False, width=360)

    ask(agent, order)
    page = open_in_inbox(manager, order)
    link_to(page, order).click()
    decide(page, "Approve", comment="Seen the photo.")
    expect(page.get_by_role("heading", name="You approved this")).to_be_visible()
    reload_until(agent.page, "refunded")

    assert desk.paid_back(order) == [AMOUNT]


def test_the_list_and_the_badge_follow_by_themselves(desk: Desk, agent: Person, manager: Person) -> None:
    order = desk.take_order()
    page = manager.go(INBOX)
    page.clock.install()

    ask(agent, order)
    watch(agent.page, "waiting for a manager")
    page.clock.run_for(65_000)

    expect(link_to(page, order)).to_be_visible(timeout=WAIT_SECONDS * 1000)
    expect(page.locator("[data-df-badge]")).to_be_visible()


def test_an_answer_sent_after_a_log_out_is_not_taken_and_that_is_said(
    desk: Desk, agent: Person, manager: Person
) -> None:
    order = desk.take_order()
    ask(agent, order)
    page = open_in_inbox(manager, order)
    link_to(page, order).click()
    manager.lose_session()

    page.get_by_role("button", name="Approve").click()
    page.get_by_label("Username").fill("manager")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()

    expect(page.get_by_role("alert")).to_contain_text("You were logged out when you sent it")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", name="You approved this")).to_be_visible()
    watch(agent.page, "refunded")
    assert desk.paid_back(order) == [AMOUNT]
