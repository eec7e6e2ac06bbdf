"""All of a refund with JavaScript switched off."""

from tests.support.browser import Visit
from tests.support.browser_refunds import AMOUNT, Desk, ask, decide, open_question, reload_until


def test_a_refund_is_asked_for_approved_and_read_without_javascript(desk: Desk, visit: Visit) -> None:
    order = desk.take_order()
    agent = visit(desk.url, "agent", java_script_enabled=False)
    manager = visit(desk.url, "manager", java_script_enabled=False)

    ask(agent, order)
    decide(open_question(manager, order), "Approve", comment="Seen the photo.")
    reload_until(agent.page, "refunded")

    assert desk.paid_back(order) == [AMOUNT]
    assert "$600.00" in desk.wait_for_mail(order).text


def test_a_refund_is_called_off_without_javascript(desk: Desk, visit: Visit) -> None:
    order = desk.take_order()
    agent = visit(desk.url, "agent", java_script_enabled=False)

    ask(agent, order)
    agent.page.get_by_role("link", name="Call this refund off").click()
    agent.page.get_by_label("Reason").fill("She keeps it.")
    agent.page.get_by_role("button", name="Call the refund off").click()
    reload_until(agent.page, "called off")

    assert desk.paid_back(order) == []
