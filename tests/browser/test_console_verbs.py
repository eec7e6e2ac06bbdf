"""Each verb on a run, done by people in a browser: offered, previewed, given a reason, told when done; refused to who
may not, and to whoever comes second with a page that has grown old. With and without JavaScript.

A refund has neither an undo nor a second version: these two are met in the site that has `tests.browser_app` besides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Person, Visit
from tests.support.browser_grid import STOCK, UNFOLD, Grid

RUNS = "/durableflows/runs/"
PAUSE_POST = "/durableflows/console/do/pause/post/"
FIRST, SECOND, THIRD = "looked at it with the customer", "the customer has called", "nobody needs it any more"
SHOW = "Show what it would do"


def give_hours(page: Page) -> None:
    page.get_by_label("More time, in hours").fill("5")
    page.get_by_role("button", name=SHOW).click()


def name_heir(page: Page) -> None:
    page.get_by_label("Who settles what is left").fill("admin")
    page.get_by_role("button", name=SHOW).click()


def change_amount(page: Page) -> None:
    page.get_by_label("Refund id").fill('"re_by_hand"')
    page.get_by_role("button", name=SHOW).click()


def choose_step(page: Page, step: str = "pay") -> None:
    page.get_by_label("Go on from").select_option(step)
    page.get_by_role("button", name=SHOW).click()


def choose_version(page: Page) -> None:
    page.get_by_label("Go on under version").select_option("2")
    page.get_by_role("button", name=SHOW).click()


def nothing_more(page: Page) -> None: ...


@dataclass(frozen=True, slots=True)
class Verb:
    """`words`: of the link and the button; `did`: what is said when it is done; `late`: to whoever sends it second;
    `is_again`: who looks again may do it once more.
    """

    words: str
    fill: Callable[[Page], None]
    did: str
    late: str
    site: str = STOCK
    is_again: bool = False


SINCE = "it has changed since you looked"
VERBS: dict[str, Verb] = {
    "pause": Verb("Pause it", nothing_more, "The run is paused", late=SINCE),
    "resume": Verb("Resume it", nothing_more, "The run goes on.", late=SINCE),
    "retry": Verb("Retry it now", nothing_more, "The run goes on now.", late="nothing of it waits for a retry"),
    "extend": Verb("Give it more time or budget", give_hours, "The run has more.", late=SINCE, is_again=True),
    "redrive": Verb("Go on from an earlier step", choose_step, "The run goes on.", late="it goes on by itself"),
    "edit": Verb(
        "Change its state", change_amount, "The state was changed.", late="any more: look at it again", is_again=True
    ),
    "migrate": Verb("Move it to a newer version", choose_version, "under the newer version", "leads further", UNFOLD),
    "cancel": Verb("Cancel it", nothing_more, "The run is being cancelled.", late="has already finished: cancelled"),
    "compensate": Verb("Undo what it did", nothing_more, "What it did is being undone.", SINCE, UNFOLD),
    "abandon": Verb("Abandon it", name_heir, "The run was abandoned.", late="has already finished: abandoned"),
}


WITHOUT_ELSEWHERE = ("pause", "resume")
"""Done without JavaScript in `test_console`; all others here."""


def open_verb(person: Person, run: str, verb: Verb, *, reason: str) -> Page:
    """Go from the run's page to what the verb would do to it now, and say why it shall."""
    page = person.go(f"{RUNS}{run}/")
    page.get_by_role("link", name=verb.words, exact=True).click()
    verb.fill(page)
    expect(page.get_by_role("heading", name="What it would do now")).to_be_visible()
    page.get_by_label("Reason").fill(reason)
    return page


def send(page: Page, verb: Verb) -> None:
    page.get_by_role("button", name=verb.words, exact=True).click()


def expect_done(page: Page, verb: Verb) -> None:
    expect(page.get_by_role("status").first).to_contain_text(verb.did)


def expect_told(page: Page, text: str) -> None:
    """Of what was not done as it was sent."""
    expect(page.locator("main")).to_contain_text(text)


def history(page: Page, run: str) -> str:
    page.goto(f"{RUNS}{run}/history/")
    return page.locator("main").inner_text()


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_is_done_with_a_reason_and_whoever_comes_second_is_told(name: str, visit: Visit, grid: Grid) -> None:
    """One of the two is without JavaScript; the second clicks twice where a script sees to it."""
    verb, run = VERBS[name], grid.made["acts"][name]
    url, first_has_script = grid.urls[verb.site], name in WITHOUT_ELSEWHERE
    people = [
        visit(url, "admin", java_script_enabled=has_script) for has_script in (not first_has_script, first_has_script)
    ]
    second = open_verb(people[0], run, verb, reason=SECOND)
    page = open_verb(people[1], run, verb, reason=FIRST)

    send(page, verb)
    expect_done(page, verb)
    second.get_by_role("button", name=verb.words, exact=True).click(click_count=1 if first_has_script else 2)
    expect_told(second, verb.late)

    told = history(page, run)
    assert FIRST in told
    assert SECOND not in told
    if verb.is_again:
        send(open_verb(people[0], run, verb, reason=SECOND), verb)
        expect_done(second, verb)


def test_an_effect_in_doubt_takes_the_verdict_of_whoever_is_first(visit: Visit, grid: Grid) -> None:
    """The first without JavaScript; the second has it, clicks twice, and is asked to look again."""
    run = grid.made["acts"]["resolve"]
    pages = []
    for has_script in (True, False):
        page = visit(grid.urls[STOCK], "admin", java_script_enabled=has_script).go(f"{RUNS}{run}/ledger/")
        page.get_by_role("link", name="Say what happened").first.click()
        page.get_by_label("It did not happen").check()
        page.get_by_label("Reason").fill("the provider's books do not have it")
        pages.append(page)
    second, first = pages

    first.get_by_role("button", name="Say so").click()
    expect(first.get_by_role("status").first).to_contain_text("Your verdict is on record")
    second.get_by_role("button", name="Say so").dblclick()

    expect_told(second, "Nothing was done.")


@pytest.mark.parametrize("name", ["agent", "manager"])
def test_who_may_not_operate_runs_is_offered_nothing_and_refused_at_each_address(
    name: str, visit: Visit, grid: Grid
) -> None:
    """The agent has started these runs and may cancel them, the manager does not even see them here. Pages are fetched
    in the session of the browser, and not drawn: how one looks without verbs is in `test_console`.
    """
    acts = grid.made["acts"]
    for site in (STOCK, UNFOLD):
        person = visit(grid.urls[site], name)
        for verb, one in VERBS.items():
            if one.site == site and (name, verb) != ("agent", "cancel"):
                path = f"{RUNS}{acts[verb]}/"
                assert f"/do/{verb}/" not in person.context.request.get(path).text()
                assert_refused(person, f"{path}do/{verb}/")
    person = visit(grid.urls[STOCK], name)
    page = person.go(f"{RUNS}{acts['resolve']}/ledger/")
    expect(page.get_by_role("link", name="Say what happened")).to_have_count(0)
    for path in (f"{RUNS}bulk/?verb=pause&run={acts['pause']}", f"{RUNS}bulk/all/?verb=pause", PAUSE_POST):
        assert_refused(person, path)


def assert_refused(person: Person, path: str) -> None:
    """Neither the page nor a form that the person has made, with the token of their own session, is let in."""
    cookies: list[Any] = list(person.context.cookies())
    token = next(one["value"] for one in cookies if one["name"] == "csrftoken")
    form = {"csrfmiddlewaretoken": token, "do": "yes", "reason": SECOND, "shown": "{}"}
    for answer in (
        person.context.request.get(path),
        person.context.request.post(path, form=form, headers={"Origin": person.url}),
    ):
        is_said = "Not allowed here" in answer.text()  # which is not said where a token is missing
        assert (answer.status, is_said) in ((403, True), (404, False)), answer.text()


def test_what_has_changed_since_several_were_chosen_is_left_alone(visit: Visit, grid: Grid) -> None:
    verb, (one, other) = VERBS["cancel"], (grid.made["stories"][name] for name in ("one", "other"))
    late = visit(grid.urls[UNFOLD], "admin").go(f"{RUNS}bulk/?verb=cancel&run={one}&run={other}")
    late.get_by_label("Reason").fill(SECOND)
    page = open_verb(visit(grid.urls[UNFOLD], "admin", java_script_enabled=False), one, verb, reason=FIRST)
    send(page, verb)
    expect_done(page, verb)

    late.get_by_role("button", name="Cancel it: 2 runs").dblclick()

    results = late.get_by_role("row")
    expect(results.filter(has=late.locator(f"[href*='{one}']"))).to_contain_text("has already finished: cancelled")
    expect(results.filter(has=late.locator(f"[href*='{other}']"))).to_contain_text(verb.did)


def test_a_provider_is_paused_by_whoever_is_first(visit: Visit, grid: Grid) -> None:
    """The first without JavaScript; the second has it, and clicks twice."""
    pages = [
        visit(grid.urls[UNFOLD], "admin", java_script_enabled=has_script).go(PAUSE_POST) for has_script in (True, False)
    ]
    for page, reason in zip(pages, (SECOND, FIRST), strict=True):
        page.get_by_label("Reason").fill(reason)
    late, first = pages

    first.get_by_role("button", name="Pause it").click()
    expect(first.get_by_role("status").first).to_contain_text("nothing more is sent to it")
    late.get_by_role("button", name="Pause it").dblclick()

    expect_told(late, "It is paused already, by admin")
    expect_told(late, FIRST)


def part(page: Page, words: str) -> str:
    """What stands below one heading of the preview, with the heading."""
    return page.locator(".df-part", has=page.get_by_role("heading", name=words)).inner_text()


def operators(visit: Visit, grid: Grid) -> tuple[Person, Person, Person]:
    """Three windows of people who may operate runs."""
    url = grid.urls[UNFOLD]
    return visit(url, "admin"), visit(url, "admin"), visit(url, "admin")


def test_a_run_is_moved_to_a_newer_version_as_it_stands_then_and_once(visit: Visit, grid: Grid) -> None:
    run, verb = grid.made["stories"]["migrate"], VERBS["migrate"]
    one, other, approver = operators(visit, grid)
    page, late = (open_verb(person, run, verb, reason=why) for person, why in ((one, FIRST), (other, SECOND)))
    assert "version: 1 -> 2" in part(page, "Becomes other")
    assert 'campaign: not there yet -> "spring"' in part(page, "Becomes other")
    assert "ask, as sign_off" in part(page, "Goes on")

    question = approver.go(f"/durableflows/inbox/{grid.made['stories']['asked']}/")
    question.get_by_role("button", name="Approve").click()
    expect_told(question, "approved")
    send(page, verb)
    expect_told(page, SINCE)
    expect_told(page, "No longer: goes on, or is done again: ask, as sign_off")
    page.get_by_role("button", name=verb.words, exact=True).dblclick()
    expect_done(page, verb)
    send(late, verb)

    expect_told(late, "no declared migration leads further")
    told = history(page, run)
    assert FIRST in told
    assert SECOND not in told


def test_what_a_run_did_is_undone_as_it_stands_then_and_once(visit: Visit, grid: Grid) -> None:
    run, verb = grid.made["stories"]["compensate"], VERBS["compensate"]
    one, other, third = operators(visit, grid)
    page = open_verb(one, run, verb, reason=FIRST)
    assert "Is undone: USD 40.00 (1)" in part(page, "Is undone")
    assert "vouchers.issue" in part(page, "Is undone")
    assert "Cannot be undone: USD 5.00 (1)" in part(page, "Cannot be undone")
    assert "post.send" in part(page, "Cannot be undone")

    redriven = third.go(f"/durableflows/runs/{run}/do/redrive/")
    choose_step(redriven, "enter")
    redriven.get_by_label("Reason").fill("the books are open")
    redriven.get_by_role("button", name=VERBS["redrive"].words, exact=True).dblclick()
    expect_done(redriven, VERBS["redrive"])
    late = open_verb(other, run, verb, reason=SECOND)
    send(page, verb)
    expect_told(page, "New: is closed: enter, which would come next")
    page.get_by_role("button", name=verb.words, exact=True).dblclick()
    expect_done(page, verb)
    send(late, verb)
    expect_told(late, SINCE)
    told = history(page, run)

    assert FIRST in told
    assert SECOND not in told
    abandoned = open_verb(third, run, VERBS["abandon"], reason=THIRD)  # no worker undoes it here
    abandoned.get_by_role("button", name=VERBS["abandon"].words, exact=True).dblclick()
    expect_done(abandoned, VERBS["abandon"])
