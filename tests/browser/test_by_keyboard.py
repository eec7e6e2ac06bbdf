"""A refund by the keyboard alone: nothing here touches the mouse."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.support.browser import Person
from tests.support.browser_refunds import AMOUNT, Desk, amount_field, open_question, refund_button, see, watch

MOST_STOPS = 80
NAME = "() => { const one = document.activeElement; return (one.innerText || one.name || '').trim(); }"


def tab_to(page: Page, aim: Locator) -> list[str]:
    """Press Tab until the aim has the focus, and give the words of each stop on the way."""
    stops: list[str] = []
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        stops.append(page.evaluate(NAME))
        if aim.evaluate("element => element === document.activeElement"):
            return stops
    raise AssertionError(f"not reached by Tab: {aim}; stops: {stops}")


def test_the_first_stop_leads_past_the_head_of_the_page(desk: Desk, agent: Person) -> None:
    page = agent.go("/")
    skip = page.get_by_role("link", name="Go to the content")

    page.keyboard.press("Tab")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")

    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.querySelector('main').contains(document.activeElement)")


def test_stops_follow_the_order_in_which_the_page_is_read(desk: Desk, agent: Person) -> None:
    page = agent.go(f"/orders/{desk.take_order()}/")

    stops = tab_to(page, refund_button(page))

    wanted = ["Go to the content", "Support desk", "Orders", "Log out", "All orders", "Refresh"]
    assert [stop for stop in stops if stop in wanted] == wanted
    assert stops[-3:] == ["amount", "reason", "Refund"]


def test_a_refund_is_asked_for_and_approved_by_keyboard(desk: Desk, agent: Person, manager: Person) -> None:
    order = desk.take_order()

    page = agent.go(f"/orders/{order}/")
    tab_to(page, amount_field(page))
    page.keyboard.press("Control+A")
    page.keyboard.type(str(AMOUNT))
    tab_to(page, page.get_by_label("Reason"))
    page.keyboard.type("It came broken.")
    tab_to(page, refund_button(page))
    page.keyboard.press("Enter")
    watch(page, "waiting for a manager")

    question = open_question(manager, order)
    tab_to(question, question.get_by_label(re.compile("^Comment")))
    question.keyboard.type("Seen the photo.")
    tab_to(question, question.get_by_role("button", name="Approve"))
    question.keyboard.press("Enter")

    expect(question.locator("body")).to_contain_text("approved")
    see(page, "refunded")
    assert desk.paid_back(order) == [AMOUNT]


def test_after_a_refused_form_the_focus_is_at_what_is_wrong(desk: Desk, agent: Person) -> None:
    page = agent.go(f"/orders/{desk.take_order()}/")
    tab_to(page, amount_field(page))
    page.keyboard.press("Control+A")
    page.keyboard.type("5000")
    tab_to(page, page.get_by_label("Reason"))
    page.keyboard.type("More than was paid.")
    tab_to(page, refund_button(page))
    page.keyboard.press("Enter")

    problems = page.locator("#problems")
    expect(problems).to_be_focused()
    tab_to(page, problems.get_by_role("link"))
    page.keyboard.press("Enter")

    expect(amount_field(page)).to_be_focused()
