"""Open pages follow what others do, without a reload, and leave alone what is being typed."""

from playwright.sync_api import expect

from tests.support.browser import Person
from tests.support.browser_refunds import WAIT_SECONDS, Desk, ask, decide, open_question, watch


def test_the_page_of_a_run_follows_the_run(desk: Desk, agent: Person, manager: Person, second: Person) -> None:
    order = desk.take_order()
    ask(agent, order)
    page = open_question(second, order)
    page.get_by_role("link", name="The whole run, with its history").click()
    standing = page.locator("#df-standing")
    expect(standing).to_contain_text("Waiting for a decision")

    decide(open_question(manager, order), "Approve")

    expect(standing).to_contain_text("Done", timeout=WAIT_SECONDS * 1000)
    expect(page.locator("#df-known")).to_contain_text("payments.refund: happened")


def test_what_an_agent_types_stays_when_the_page_follows_another_refund(
    desk: Desk, agent: Person, manager: Person
) -> None:
    order = desk.take_order()
    ask(agent, order)
    reason = agent.page.get_by_label("Reason")
    reason.fill("And the second on")

    decide(open_question(manager, order), "Approve")
    watch(agent.page, "refunded")
    reason.press_sequentially("e is broken too.")

    expect(reason).to_have_value("And the second one is broken too.")
