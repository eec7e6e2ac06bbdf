"""A refund above the limit, from the agent's form over the manager's answer to the mail, as people see it."""

from tests.support.browser import Person
from tests.support.browser_refunds import AMOUNT, Desk, ask, decide, open_question, see

REFUNDS = "/v1/refunds"


def test_an_approved_refund_is_paid_once_and_told(desk: Desk, agent: Person, manager: Person) -> None:
    order = desk.take_order()

    ask(agent, order)
    page = open_question(manager, order)
    assert desk.paid_back(order) == []
    decide(page, "Approve", comment="Seen the photo.")
    see(agent.page, "refunded")

    assert desk.paid_back(order) == [AMOUNT]
    assert desk.wait_for_mail(order).subject == f"Your refund for order {order}"
    agent.page.get_by_role("link", name="Mails").click()
    agent.page.get_by_role("link", name=f"Your refund for order {order}", exact=True).click()
    assert "$600.00" in agent.page.locator("main").inner_text()


def test_a_rejected_refund_is_told_and_not_paid(desk: Desk, agent: Person, manager: Person) -> None:
    order = desk.take_order()

    ask(agent, order)
    decide(open_question(manager, order), "Reject", comment="The photo shows no scratch.")
    see(agent.page, "rejected")

    assert "The photo shows no scratch." in agent.page.locator("main").inner_text()
    assert desk.wait_for_mail(order).subject == f"About your refund for order {order}"
    assert desk.paid_back(order) == []


def test_a_refund_whose_answer_is_lost_is_paid_once_and_told(desk: Desk, agent: Person, manager: Person) -> None:
    order = desk.take_order()
    desk.shop.sandbox.fault("cut_after", path=REFUNDS, charge=desk.charges[order])

    ask(agent, order)
    decide(open_question(manager, order), "Approve")
    see(agent.page, "refunded")

    assert desk.shop.sandbox.faults() == []
    assert desk.paid_back(order) == [AMOUNT]
    assert desk.wait_for_mail(order).subject == f"Your refund for order {order}"
