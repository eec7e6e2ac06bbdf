"""Two people at one refund, and one person who clicks twice or goes back: one of them counts, the other is told."""

import re

from playwright.sync_api import Page, expect

from tests.support.browser import Person, Visit
from tests.support.browser_refunds import AMOUNT, Desk, ask, badge, decide, open_question, see, watch


def text(page: Page) -> str:
    return page.locator("body").inner_text()


def test_the_second_of_two_managers_is_told_who_decided(
    desk: Desk, agent: Person, manager: Person, second: Person
) -> None:
    order = desk.take_order()
    ask(agent, order)
    open_question(manager, order)
    open_question(second, order)

    decide(manager.page, "Approve", comment="Seen the photo.")
    decide(second.page, "Reject", comment="Too much.")

    expect(second.page.locator("body")).to_contain_text(re.compile("approved by manager|manager approved"))
    assert "too late" in text(second.page)
    see(agent.page, "refunded")
    assert desk.paid_back(order) == [AMOUNT]


def test_a_double_click_decides_once(desk: Desk, agent: Person, manager: Person) -> None:
    order = desk.take_order()
    ask(agent, order)

    open_question(manager, order).get_by_role("button", name="Approve").dblclick()

    expect(manager.page.locator("body")).to_contain_text(re.compile("approved"))
    see(agent.page, "refunded")
    assert desk.paid_back(order) == [AMOUNT]
    assert agent.page.locator("main").inner_text().count("manager approved") <= 1


def test_a_double_click_asks_once(desk: Desk, agent: Person) -> None:
    order = desk.take_order()
    page = agent.go(f"/orders/{order}/")
    page.get_by_label("A part").check()
    page.get_by_label(re.compile("^Amount")).fill("40")
    page.get_by_label("Reason").fill("A scratch.")

    page.get_by_role("button", name="Refund", exact=True).dblclick()

    watch(page, "refunded")
    expect(badge(page)).to_have_count(1)
    assert desk.paid_back(order) == [40]


def test_going_back_after_deciding_shows_what_was_decided(desk: Desk, agent: Person, manager: Person) -> None:
    order = desk.take_order()
    ask(agent, order)
    page = open_question(manager, order)
    decide(page, "Reject", comment="No.")
    expect(page.locator("body")).to_contain_text("rejected")

    page.go_back()

    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    assert "manager rejected" in text(page)
    see(agent.page, "rejected")
    assert desk.paid_back(order) == []


def test_a_manager_whose_page_is_open_is_told_that_the_agent_called_the_refund_off(
    desk: Desk, agent: Person, manager: Person
) -> None:
    order = desk.take_order()
    ask(agent, order)
    question = open_question(manager, order)

    agent.page.get_by_role("link", name="Call this refund off").click()
    agent.page.get_by_label("Reason").fill("She keeps it.")
    agent.page.get_by_role("button", name="Call the refund off").click()
    watch(agent.page, "called off")  # it leads to the order's page, which must not be loaded anew on the way
    decide(question, "Approve")

    expect(question.locator("body")).to_contain_text("too late")
    expect(question.locator("body")).to_contain_text(re.compile("cancelled|called off", re.IGNORECASE))
    assert desk.paid_back(order) == []


def test_a_customer_who_is_changed_meanwhile_is_shown_side_by_side_and_decided_anew(
    desk: Desk, agent: Person, manager: Person, visit: Visit
) -> None:
    order = desk.take_order()
    ask(agent, order)
    question = open_question(manager, order)
    admin = visit(desk.url, "admin").go(f"/admin/customer_ops/customer/?q={order}")
    admin.get_by_role("link", name=f"Customer of {order}", exact=True).click()
    admin.get_by_label("Name").fill(f"Buyer of {order}")
    admin.get_by_role("button", name="Save", exact=True).click()
    expect(admin.locator("body")).to_contain_text("was changed successfully")

    decide(question, "Approve")

    changes = question.locator("table", has=question.locator("del"))
    expect(changes.locator("del")).to_contain_text(f"Customer of {order}")
    expect(changes.locator("ins")).to_contain_text(f"Buyer of {order}")
    decide(question, "Approve")
    see(agent.page, "refunded")
    assert desk.paid_back(order) == [AMOUNT]
