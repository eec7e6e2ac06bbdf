"""Each verb on a run, done by a person in a browser: offered on its page, previewed, given a reason, told when done.

By keyboard or mouse, with and without JavaScript, is `test_console`; here each verb is met once, and refused to others.
"""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Visit
from tests.support.browser_grid import STOCK, Grid

RUNS = "/durableflows/runs/"


def give_hours(page: Page) -> None:
    page.get_by_label("More time, in hours").fill("5")
    page.get_by_role("button", name="Show what it would do").click()


def name_heir(page: Page) -> None:
    page.get_by_label("Who settles what is left").fill("admin")
    page.get_by_role("button", name="Show what it would do").click()


def change_amount(page: Page) -> None:
    page.get_by_label("Refund id").fill('"re_by_hand"')
    page.get_by_role("button", name="Show what it would do").click()


def choose_step(page: Page) -> None:
    page.get_by_label("Go on from").select_option("pay")
    page.get_by_role("button", name="Show what it would do").click()


def nothing_more(page: Page) -> None: ...


VERBS: dict[str, tuple[str, Callable[[Page], None], str]] = {
    "pause": ("Pause it", nothing_more, "The run is paused"),
    "resume": ("Resume it", nothing_more, "The run goes on."),
    "retry": ("Retry it now", nothing_more, "The run goes on now."),
    "extend": ("Give it more time or budget", give_hours, "The run has more."),
    "redrive": ("Go on from an earlier step", choose_step, "The run goes on."),
    "edit": ("Change its state", change_amount, "The state was changed."),
    "cancel": ("Cancel it", nothing_more, "The run is being cancelled."),
    "abandon": ("Abandon it", name_heir, "The run was abandoned."),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_offered_previewed_and_done_with_a_reason(verb: str, visit: Visit, grid: Grid) -> None:
    words, fill, told = VERBS[verb]
    page = visit(grid.urls[STOCK], "admin").go(f"{RUNS}{grid.made['acts'][verb]}/")

    page.get_by_role("link", name=words, exact=True).click()
    fill(page)
    expect(page.get_by_role("heading", name="What it would do now")).to_be_visible()
    page.get_by_label("Reason").fill("looked at it with the customer")
    page.get_by_role("button", name=words, exact=True).click()

    expect(page.get_by_role("status").first).to_contain_text(told)
    page.get_by_role("link", name="History").click()
    expect(page.locator("main")).to_contain_text("looked at it with the customer")


def test_a_person_says_what_happened_with_an_effect_in_doubt(visit: Visit, grid: Grid) -> None:
    page = visit(grid.urls[STOCK], "admin").go(f"{RUNS}{grid.made['acts']['resolve']}/ledger/")

    page.get_by_role("link", name="Say what happened").first.click()
    page.get_by_label("It did not happen").check()
    page.get_by_label("Reason").fill("the provider's books do not have it")
    page.get_by_role("button", name="Say so").click()

    expect(page.get_by_role("status").first).to_contain_text("Your verdict is on record")


@pytest.mark.parametrize("name", ["agent", "manager"])
def test_who_may_not_operate_runs_is_refused_at_each_address(name: str, visit: Visit, grid: Grid) -> None:
    """Wrong right: the agent has started these runs and may cancel them, the manager does not even see them here."""
    person = visit(grid.urls[STOCK], name)
    for verb in VERBS:
        page = person.go(f"{RUNS}{grid.made['acts'][verb]}/do/{verb}/")
        if (name, verb) != ("agent", "cancel"):
            expect(page.get_by_role("button", name=VERBS[verb][0], exact=True)).to_have_count(0)
    person.complaints.clear()  # the refusals themselves
