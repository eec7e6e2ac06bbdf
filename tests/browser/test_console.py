"""The console by keyboard, without JavaScript, with a page that has grown old, and with two people at one run."""

import re

from playwright.sync_api import Page, expect

from tests.browser.test_by_keyboard import tab_to
from tests.support.browser import Person, Visit
from tests.support.browser_refunds import (
    AMOUNT,
    WAIT_SECONDS,
    Desk,
    ask,
    decide,
    open_question,
    reload_until,
    until_shown,
)
from tests.support.browser_shop import PASSWORD
from tests.support.workers import wait_for

RUNS = "/durableflows/runs/"


def open_run(person: Person) -> Page:
    """Open the newest run that waits for a decision, from the list."""
    page = person.go(f"{RUNS}?show=people")

    def look() -> bool:
        page.reload()
        return page.locator("#df-list tbody a").count() > 0

    wait_for(look, seconds=WAIT_SECONDS, what="a run that waits for people")
    page.locator("#df-list tbody a").first.click()
    expect(page.get_by_role("heading", name="Where it stands")).to_be_visible()
    return page


def pause(page: Page, reason: str) -> None:
    page.get_by_role("link", name="Pause it").click()
    page.get_by_label("Reason").fill(reason)
    page.get_by_role("button", name="Pause it").click()


def test_a_run_is_paused_and_resumed_without_javascript_on_a_phone(desk: Desk, visit: Visit) -> None:
    ask(visit(desk.url, "agent"), desk.take_order())
    page = open_run(visit(desk.url, "admin", java_script_enabled=False, width=360))

    pause(page, "the provider asked for quiet")
    expect(page.get_by_role("status").first).to_contain_text("The run is paused")
    expect(page.locator("#df-standing")).to_contain_text("Paused by admin: the provider asked for quiet")
    page.get_by_role("link", name="Resume it").click()
    page.get_by_label("Reason").fill("it is over")
    page.get_by_role("button", name="Resume it").click()

    expect(page.locator("#df-standing")).to_contain_text("Waiting for a decision")


def test_a_run_is_cancelled_by_keyboard(desk: Desk, visit: Visit) -> None:
    order = desk.take_order()
    ask(visit(desk.url, "agent"), order)
    page = open_run(visit(desk.url, "admin"))

    link = page.get_by_role("link", name="Cancel it")
    tab_to(page, link)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=re.compile("^Cancel it"))).to_be_visible()
    tab_to(page, page.get_by_label("Reason"))
    page.keyboard.type("The customer keeps it.")
    tab_to(page, page.get_by_role("button", name="Cancel it"))
    page.keyboard.press("Enter")

    expect(page.get_by_role("status").first).to_contain_text("The run is being cancelled")
    assert desk.paid_back(order) == []


def test_who_comes_second_is_told_what_has_changed(desk: Desk, visit: Visit) -> None:
    ask(visit(desk.url, "agent"), desk.take_order())
    first, second = open_run(visit(desk.url, "admin")), visit(desk.url, "admin")
    address = first.url
    late = second.go(address.partition(desk.url)[2] + "do/pause/")
    late.get_by_label("Reason").fill("too late")
    first.get_by_role("link", name="Cancel it").click()
    first.get_by_label("Reason").fill("The customer keeps it.")
    first.get_by_role("button", name="Cancel it").click()
    expect(first.get_by_role("status").first).to_contain_text("being cancelled")

    late.get_by_role("button", name="Pause it").click()

    expect(late.locator("main")).to_contain_text("It would be refused.")


def test_several_runs_are_paused_at_once_and_each_has_its_result(desk: Desk, visit: Visit) -> None:
    agent = visit(desk.url, "agent")
    ask(agent, desk.take_order())
    ask(agent, desk.take_order())
    page = open_run(visit(desk.url, "admin", java_script_enabled=False))
    page.get_by_role("link", name="All runs").click()
    page.get_by_role("link", name="Waiting for people").click()

    boxes = page.locator("#df-list [type=checkbox]")

    def are_there() -> bool:
        page.reload()
        return boxes.count() >= 2

    wait_for(are_there, seconds=WAIT_SECONDS, what="two runs that wait for people")
    boxes.nth(0).check()
    boxes.nth(1).check()
    page.get_by_role("button", name="Pause…", exact=True).click()
    page.get_by_label("Reason").fill("look at both")
    page.get_by_role("button", name="Pause it: 2 runs").click()

    expect(page.get_by_text("The run is paused: nothing more of it begins.")).to_have_count(2)


def test_all_runs_of_a_list_are_paused_and_the_page_goes_on_by_itself(desk: Desk, visit: Visit) -> None:
    ask(visit(desk.url, "agent"), desk.take_order())
    page = open_run(visit(desk.url, "admin"))
    page.get_by_role("link", name="All runs").click()
    page.get_by_role("link", name="Waiting for people").click()

    page.get_by_role("button", name="Pause all…", exact=True).click()
    page.get_by_role("button", name=re.compile("^Look at the next")).click()
    expect(page.get_by_role("heading", name=re.compile("^What it would do to"))).to_be_visible()
    page.get_by_label("Reason").fill("maintenance")
    page.get_by_role("button", name=re.compile("^Pause it: ")).click()

    expect(page.get_by_role("status").last).to_contain_text(re.compile(r"\d+ of \d+ done"))
    expect(page.get_by_text("The run is paused: nothing more of it begins.").first).to_be_visible()


def test_an_order_sent_after_a_log_out_is_not_done_and_that_is_said(desk: Desk, visit: Visit) -> None:
    ask(visit(desk.url, "agent"), desk.take_order())
    admin = visit(desk.url, "admin")
    page = open_run(admin)
    page.get_by_role("link", name="Cancel it").click()
    page.get_by_label("Reason").fill("The customer keeps it.")
    admin.lose_session()

    page.get_by_role("button", name="Cancel it").click()
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()

    expect(page.get_by_role("alert")).to_contain_text("You were logged out when you sent it")
    expect(page.get_by_role("heading", name=re.compile("^Cancel it"))).to_be_visible()


def test_who_has_no_right_sees_no_verbs(desk: Desk, visit: Visit) -> None:
    agent = visit(desk.url, "agent")
    ask(agent, desk.take_order())
    page = agent.go(RUNS)
    page.locator("#df-list tbody a").first.click()

    expect(page.get_by_role("heading", name="Where it stands")).to_be_visible()
    expect(page.get_by_role("link", name="Pause it")).to_have_count(0)
    expect(page.locator("#df-list [type=checkbox]")).to_have_count(0)


def test_a_refund_waits_for_a_provider_that_is_paused_by_hand_and_is_paid_once_it_is_resumed(
    desk: Desk, visit: Visit
) -> None:
    order = desk.take_order()
    agent, manager = visit(desk.url, "agent"), visit(desk.url, "manager")
    page = visit(desk.url, "admin", java_script_enabled=False, width=360).go("/durableflows/console/providers/")
    page.get_by_role("link", name="payments").click()
    pause(page, "they have announced maintenance")
    expect(page.get_by_role("status").first).to_contain_text("nothing more is sent to it")

    ask(agent, order)
    decide(open_question(manager, order), "Approve")
    waits = page.get_by_role("link", name=re.compile(r"^\d+ steps? of \d+ run"))
    until_shown(page, waits, what="a step that waits for the provider")
    waits.click()
    expect(page.locator("#df-list tbody a").first).to_be_visible()
    page.go_back()
    assert desk.paid_back(order) == []
    page.get_by_role("link", name="Let requests leave again").click()
    page.get_by_label("Reason").fill("they are back")
    page.get_by_role("button", name="Let requests leave again").click()

    expect(page.get_by_role("status").first).to_contain_text("Requests leave for it again")
    reload_until(agent.page, "refunded")
    assert desk.paid_back(order) == [AMOUNT]


def test_the_runs_about_an_object_have_room_on_its_admin_page(desk: Desk, visit: Visit) -> None:
    """In a form's row, which is as wide as what stands in it."""
    ask(visit(desk.url, "agent"), desk.take_order())
    page = visit(desk.url, "admin").go("/admin/customer_ops/refundrequest/")
    page.locator("#result_list tbody th a").first.click()

    box = page.locator(".df-about").bounding_box()

    assert box is not None
    assert box["width"] > 200, box
