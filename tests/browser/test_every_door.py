"""Whatever the door, in a browser: two people at once, a double click, the way back, a session, a right or an account
that is gone, a request that was withdrawn. One answer counts, and the others are told (R22 to R27).
"""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Person, Visit
from tests.support.browser_doors import DOORS, Door, asked_at
from tests.support.browser_refunds import AMOUNT, Desk, decide, see, watch

DECIDED = re.compile("(?:approved|rejected) by manager|manager (?:approved|rejected)")


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Door:
    return DOORS[request.param]


def body(page: Page) -> str:
    return page.locator("body").inner_text()


def press_without_waiting(page: Page, verdict: str) -> None:
    """Send the form, and let the next person send theirs before anything has come back."""
    page.get_by_role("button", name=verdict).click(no_wait_after=True)


def test_two_people_at_once_and_one_of_them_counts(
    door: Door, desk: Desk, agent: Person, manager: Person, second: Person
) -> None:
    """R22."""
    order, (one, other) = asked_at(door, desk, agent, manager, second)

    press_without_waiting(one, "Approve")
    press_without_waiting(other, "Approve")
    for page in (one, other):
        expect(page.locator("body")).to_contain_text(re.compile("approved", re.IGNORECASE))
        expect(page.get_by_role("button", name="Approve")).to_have_count(0)

    texts = [body(one), body(other)]
    assert len([text for text in texts if re.search(r"lready approved by (?:manager|second)", text)]) == 1, texts
    see(agent.page, "refunded")
    assert desk.paid_back(order) == [AMOUNT]


def test_the_second_is_told_who_was_first(
    door: Door, desk: Desk, agent: Person, manager: Person, second: Person
) -> None:
    """R22."""
    order, (one, other) = asked_at(door, desk, agent, manager, second)

    decide(one, "Reject", comment="The photo shows no scratch.")
    expect(one.locator("body")).to_contain_text(re.compile("rejected", re.IGNORECASE))
    decide(other, "Approve")

    expect(other.locator("body")).to_contain_text(DECIDED)
    see(agent.page, "rejected")
    assert desk.paid_back(order) == []


def test_a_double_click_decides_once(door: Door, desk: Desk, agent: Person, manager: Person) -> None:
    """R22."""
    order, (page,) = asked_at(door, desk, agent, manager)

    page.get_by_role("button", name="Approve").dblclick()

    expect(page.locator("body")).to_contain_text(re.compile("approved", re.IGNORECASE))
    see(agent.page, "refunded")
    assert desk.paid_back(order) == [AMOUNT]


def test_the_way_back_leads_to_what_was_decided(door: Door, desk: Desk, agent: Person, manager: Person) -> None:
    """R22: whoever goes back and answers once more is told that it is done."""
    order, (page,) = asked_at(door, desk, agent, manager)
    decide(page, "Reject", comment="No.")
    expect(page.locator("body")).to_contain_text(re.compile("rejected", re.IGNORECASE))

    page.go_back()
    page.reload()

    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    see(agent.page, "rejected")
    assert desk.paid_back(order) == []


def test_an_expired_session_decides_nothing_and_leads_back(
    door: Door, desk: Desk, agent: Person, manager: Person, visit: Visit
) -> None:
    """R24, R26: the answer is not taken before the log-in, and not by it."""
    order, (page,) = asked_at(door, desk, agent, manager)
    manager.lose_session()

    decide(page, "Approve")

    expect(page.get_by_label("Password")).to_be_visible()
    other = door.open(desk, visit(desk.url, "second"), order)
    expect(other.get_by_role("button", name="Approve")).to_have_count(1)
    assert desk.paid_back(order) == []


def test_a_request_that_was_called_off_is_told_so(door: Door, desk: Desk, agent: Person, manager: Person) -> None:
    order, (page,) = asked_at(door, desk, agent, manager)

    agent.page.get_by_role("link", name="Call this refund off").click()
    agent.page.get_by_label("Reason").fill("She keeps it.")
    agent.page.get_by_role("button", name="Call the refund off").click()
    watch(agent.page, "called off")
    decide(page, "Approve")

    expect(page.locator("body")).to_contain_text(re.compile("cancelled|called off|lready closed", re.IGNORECASE))
    assert desk.paid_back(order) == []


@pytest.mark.parametrize("loss", ["the right", "the account"])
def test_whoever_loses_the_right_or_the_account_while_the_page_is_open_decides_nothing(
    loss: str, door: Door, desk: Desk, agent: Person, visit: Visit
) -> None:
    """R26."""
    name = desk.take_leaver()
    order, (page,) = asked_at(door, desk, agent, visit(desk.url, name))
    admin = visit(desk.url, "admin").go(f"/admin/auth/user/?q={name}")
    admin.get_by_role("link", name=name, exact=True).click()
    if loss == "the right":
        admin.get_by_role("button", name="Remove all user permissions").click()
        admin.get_by_role("button", name="Save", exact=True).click()
        expect(admin.locator("body")).to_contain_text("was changed successfully")
    else:
        admin.get_by_role("link", name="Delete", exact=True).click()
        admin.get_by_role("button", name=re.compile("Yes")).click()
        expect(admin.locator("body")).to_contain_text("was deleted successfully")

    decide(page, "Approve")

    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    assert not re.search(r"\b1 of 1 answered|You approved", body(page))
    decide(door.open(desk, visit(desk.url, "manager"), order), "Approve")
    see(agent.page, "refunded")
    assert desk.paid_back(order) == [AMOUNT]


def test_a_scanner_that_fetches_every_address_decides_nothing(
    door: Door, desk: Desk, agent: Person, manager: Person, visit: Visit
) -> None:
    """R24: with and without a session, as programs do that look at links before people click on them."""
    order, (page,) = asked_at(door, desk, agent, manager)
    address = page.url

    for someone in (manager, visit(desk.url)):
        for method in ("GET", "HEAD", "OPTIONS") * 3:
            someone.context.request.fetch(address, method=method)
            someone.context.request.fetch(f"{address}{'&' if '?' in address else '?'}verdict=approve", method=method)

    page.reload()
    decide(page, "Approve")
    see(agent.page, "refunded")
    assert desk.paid_back(order) == [AMOUNT]
