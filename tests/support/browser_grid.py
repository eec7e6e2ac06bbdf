"""The pages of the grid: where each is, who looks at it, and what that person does before it is looked at."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from playwright.sync_api import Page, expect

from durableflows.core.payload import sha256
from tests.support.browser_refunds import amount_field, refund_button

STOCK, UNFOLD, MAILS = "stock", "unfold", "mails"
ADMINS = (STOCK, UNFOLD)
ADMIN = "/admin/durableflows"
INBOX = "/durableflows/inbox"
RUNS = "/durableflows/runs"
CONSOLE = "/durableflows/console"
HEALTH = "/durableflows/health/"

Made = Mapping[str, Mapping[str, str]]
"""Where rows are: see `browser_rows.Grid`."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Addresses by skin, and where the rows are."""

    urls: Mapping[str, str]
    made: Made


@dataclass(frozen=True, slots=True)
class Sight:
    """One page of the grid. `says` stands on it; `focus`: the part whose stops are ours; `act` leads on from `path`;
    `error`: the status with which the page itself says that something is wrong.
    """

    name: str
    path: Callable[[Made], str]
    person: str
    says: str
    focus: str = "body"
    skins: tuple[str, ...] = (STOCK,)
    act: Callable[[Page, Made], None] = lambda page, made: None
    error: int = 0


def _order(name: str) -> Callable[[Made], str]:
    return lambda made: f"/orders/{quote(made[name]['order'], safe='')}/"


def _question(name: str) -> Callable[[Made], str]:
    return lambda made: f"{ADMIN}/approvalrequest/{made[name]['asked']}/decide/"


def _several(*names: str) -> Callable[[Made], str]:
    page = f"{ADMIN}/approvalrequest/several/"
    return lambda made: page + "?" + "&".join("request=" + made[name]["asked"] for name in names)


def _answer(name: str) -> Callable[[Made], str]:
    return lambda made: f"{ADMIN}/approvalrequest/{made[name]['asked']}/decided/"


def _in_inbox(name: str, page: str = "") -> Callable[[Made], str]:
    return lambda made: f"{INBOX}/{made[name]['asked']}/{page}"


def _run(name: str) -> Callable[[Made], str]:
    return lambda made: f"{ADMIN}/workflowrun/{made[name]['run']}/change/"


def _console(name: str, page: str = "") -> Callable[[Made], str]:
    return lambda made: f"{RUNS}/{made[name]['run']}/{page}"


def _at(path: str) -> Callable[[Made], str]:
    return lambda made: path


def _ask_for_too_much(page: Page, _made: Made) -> None:
    amount_field(page).fill("5000")
    page.get_by_label("Reason").fill("More than was paid.")
    refund_button(page).click()


def _open_call_off(page: Page, _made: Made) -> None:
    page.get_by_role("link", name="Call this refund off").click()


def _log_in_wrongly(page: Page, _made: Made) -> None:
    page.get_by_label("Username").fill("nobody")
    page.get_by_label("Password").fill("a wrong password")
    page.get_by_role("button", name="Log in").click()


def _answer_other_facts(page: Page, _made: Made) -> None:
    """Answer as somebody whose page was opened when the customer still had another name."""
    shown = json.loads(page.locator("[name=shown]").input_value())
    shown["customer"] = "Bram de Vries <somewhere.else@example.com>"
    for name, value in {"shown": json.dumps(shown), "facts_digest": sha256(shown)}.items():
        page.locator(f"[name={name}]").evaluate("(field, value) => { field.value = value; }", value)
    page.get_by_role("button", name="Approve").click()


def _answer_too_late(page: Page, made: Made) -> None:
    """Send the form of a page that was opened before somebody else decided."""
    page.evaluate(
        """digest => {
          const token = document.querySelector('[name=csrfmiddlewaretoken]').value;
          const form = document.createElement('form');
          form.method = 'post';
          const fields = {csrfmiddlewaretoken: token, verdict: 'reject', facts_digest: digest, shown: '{}'};
          for (const [name, value] of Object.entries(fields)) {
            const field = document.createElement('input');
            Object.assign(field, {type: 'hidden', name, value});
            form.append(field);
          }
          document.body.append(form);
          form.submit();
        }""",
        made["decided"]["digest"],
    )
    expect(page.locator("body")).to_contain_text("too late")


def _answer_several_too_late(page: Page, made: Made) -> None:
    """Send the form of a page that was opened before one was decided, with another that is not there."""
    page.evaluate(
        """rows => {
          const form = document.querySelector('form.df-form');
          for (const one of form.querySelectorAll('[name=request]')) one.remove();
          for (const value of rows) {
            const field = document.createElement('input');
            Object.assign(field, {type: 'hidden', name: 'request', value});
            form.append(field);
          }
        }""",
        [
            f"{made['decided']['asked']}:{made['decided']['digest']}",
            f"{'0' * 36}:{'0' * 64}",
            f"{'1' * 8}-1111-1111-1111-{'1' * 12}:x",
        ],
    )
    page.get_by_role("button", name="Reject").click()
    expect(page.locator("body")).to_contain_text("0 of 2 answered")


def _hand_to_nobody(page: Page, _made: Made) -> None:
    page.locator("summary", has_text="Hand it to a colleague").click()
    page.locator("#df-assign-to").evaluate("one => { one.replaceChildren(new Option('eve')); one.value = 'eve'; }")
    page.locator("#df-assign").fill("She knows the customer.")
    page.get_by_role("button", name="Hand it over").click()


def _lend_to_oneself(page: Page, _made: Made) -> None:
    for name, text in {"taker": "manager", "starts": "2090-01-01", "until": "2090-01-01", "reason": "away"}.items():
        page.locator(f"#id_{name}").fill(text)
    page.get_by_role("button", name="Let them answer").click()


def _give_a_day(page: Page, _made: Made) -> None:
    page.get_by_label("More time, in hours").fill("24")
    page.get_by_role("button", name="Show what it would do").click()


def _cancel_without_a_reason(page: Page, _made: Made) -> None:
    """Send the form as a browser does that does not look at what is required."""
    page.locator("form[data-df-once]").evaluate("form => { form.noValidate = true; }")
    page.get_by_role("button", name="Cancel it").click()


def _open_figures(page: Page, _made: Made) -> None:
    page.locator("summary", has_text="The same in figures").click()


def _pause_without_a_reason(page: Page, _made: Made) -> None:
    page.locator("form[data-df-once]").evaluate("form => { form.noValidate = true; }")
    page.get_by_role("button", name="Pause it").click()


def _look_at_all(page: Page, _made: Made) -> None:
    page.get_by_role("button", name="Look at the next").click()
    page.get_by_role("heading", name="What it would do to").wait_for()


def _choose_all(page: Page, _made: Made) -> None:
    for box in page.locator("#df-list [type=checkbox]").all():
        box.check()
    page.get_by_role("button", name="Pause…", exact=True).click()


def _open_doubt(page: Page, _made: Made) -> None:
    page.locator("#df-list a").first.click()
    page.get_by_role("link", name="Ledger").click()
    page.get_by_role("link", name="Say what happened").first.click()


def _open_first_row(page: Page, _made: Made) -> None:
    page.locator("#df-list a").first.click()


def _open_mail(text: str) -> Callable[[Page, Made], None]:
    return lambda page, made: page.get_by_role("link", name=text).first.click()


SIGHTS = (
    Sight("log-in", _at("/login/"), "", "Log in"),
    Sight("log-in-refused", _at("/login/"), "", "Log in", act=_log_in_wrongly),
    Sight("orders", _at("/"), "agent", "R-2001"),
    Sight("no-orders", _at("/?q=nothing-like-this"), "agent", "nothing-like-this"),
    Sight("order", _order("many"), "agent", "The wardrobe came in two halves."),
    Sight("order-with-errors", _order("waiting"), "agent", "more than the $300.00 left", act=_ask_for_too_much),
    Sight("call-off", _order("waiting"), "agent", "no money leaves", act=_open_call_off),
    Sight("order-hostile", _order("hostile"), "agent", "window.hostile=1"),
    Sight("order-endless", _order("endless"), "agent", "Donaudampf"),
    Sight("questions", _at(f"{ADMIN}/approvalrequest/"), "manager", "R-2001", focus=".df", skins=ADMINS),
    Sight(
        "no-questions",
        _at(f"{ADMIN}/approvalrequest/?standing=overdue"),
        "manager",
        "overdue",
        focus=".df",
        skins=ADMINS,
    ),
    Sight("question", _question("waiting"), "manager", "R-2002", focus=".df", skins=ADMINS),
    Sight("question-decided", _question("decided"), "manager", "Measured it.", focus=".df", skins=ADMINS),
    Sight(
        "question-stale",
        _question("waiting"),
        "manager",
        "somewhere.else",
        focus=".df",
        skins=ADMINS,
        act=_answer_other_facts,
    ),
    Sight(
        "answer-too-late",
        _question("decided"),
        "second",
        "Measured it.",
        focus=".df",
        skins=ADMINS,
        act=_answer_too_late,
    ),
    Sight(
        "several",
        _several("waiting", "decided", "many"),
        "manager",
        "It is left out.",
        focus=".df",
        skins=ADMINS,
    ),
    Sight("several-hostile", _several("hostile"), "manager", "window.hostile=1", focus=".df", skins=ADMINS),
    Sight("several-endless", _several("endless", "hostile"), "manager", "W" * 40, focus=".df", skins=ADMINS),
    Sight("several-none", _several(), "manager", "Nothing is chosen", focus=".df", skins=ADMINS),
    Sight(
        "several-too-late",
        _several("waiting"),
        "manager",
        "lready approved",
        focus=".df",
        skins=ADMINS,
        act=_answer_several_too_late,
    ),
    Sight("looks", _at(f"{ADMIN}/requestview/"), "admin", "admin", focus=".df", skins=ADMINS),
    Sight("answer-taken", _answer("decided"), "manager", "You approved", focus=".df", skins=ADMINS),
    Sight("question-hostile", _question("hostile"), "manager", "window.hostile=1", focus=".df", skins=ADMINS),
    Sight("question-endless", _question("endless"), "manager", "Donaudampf", focus=".df", skins=ADMINS),
    Sight("inbox", _at(f"{INBOX}/?show=all"), "manager", "R-2001"),
    Sight("inbox-empty", _at(f"{INBOX}/?show=overdue"), "manager", "No request is overdue."),
    Sight("inbox-found-nothing", _at(f"{INBOX}/?q=nothing-like-this"), "manager", "Nothing was found"),
    Sight("inbox-question", _in_inbox("waiting"), "manager", "What approval sets free"),
    Sight("inbox-question-decided", _in_inbox("decided"), "manager", "Measured it."),
    Sight("inbox-question-stale", _in_inbox("waiting"), "manager", "somewhere.else", act=_answer_other_facts),
    Sight("inbox-answer-too-late", _in_inbox("decided"), "second", "Measured it.", act=_answer_too_late),
    Sight("inbox-answer-taken", _in_inbox("decided", "decided/"), "manager", "You approved"),
    Sight("inbox-asked", _in_inbox("waiting", "asked/"), "agent", "How far it is"),
    Sight("inbox-question-refused", _in_inbox("waiting"), "manager", "nobody of this name", act=_hand_to_nobody),
    Sight("inbox-delegations", _at(f"{INBOX}/delegations/"), "manager", "Let somebody answer for you"),
    Sight("inbox-delegations-refused", _at(f"{INBOX}/delegations/"), "manager", "oneself", act=_lend_to_oneself),
    Sight("inbox-question-hostile", _in_inbox("hostile"), "manager", "window.hostile=1"),
    Sight("inbox-question-endless", _in_inbox("endless"), "manager", "Donaudampf"),
    Sight("runs", _at(f"{ADMIN}/workflowrun/"), "manager", "refund", focus=".df", skins=ADMINS),
    Sight("run", _run("many"), "manager", "refund", focus=".df", skins=ADMINS),
    Sight("run-hostile", _run("hostile"), "manager", "refund", focus=".df", skins=ADMINS),
    Sight(
        "row",
        _at(f"{ADMIN}/sideeffect/"),
        "manager",
        "All side effects",
        focus=".df",
        skins=ADMINS,
        act=_open_first_row,
    ),
    Sight("console", _at(f"{RUNS}/"), "admin", "Waiting for people"),
    Sight("console-narrowed", _at(f"{RUNS}/?owner=agent&state=FAILED"), "admin", "Refund"),
    Sight("console-empty", _at(f"{RUNS}/?q=nothing-like-this"), "admin", "Nothing was found."),
    Sight("console-run", _console("found"), "admin", "Steps in time"),
    Sight("console-run-waiting", _console("waiting"), "admin", "Waiting for a decision"),
    Sight("console-run-ledger", _console("found", "ledger/"), "admin", "payments.refund"),
    Sight("console-run-people", _console("decided", "people/"), "admin", "Measured it."),
    Sight("console-run-state", _console("found", "state/"), "admin", "The seal on this checkpoint holds"),
    Sight("console-run-history", _console("found", "history/"), "admin", "The chain holds"),
    Sight("console-cancel", _console("waiting", "do/cancel/"), "admin", "It cannot be taken back"),
    Sight(
        "console-cancel-refused",
        _console("waiting", "do/cancel/"),
        "admin",
        "the reason stays on the record",
        act=_cancel_without_a_reason,
    ),
    Sight("console-extend", _console("waiting", "do/extend/"), "admin", "What it would do now", act=_give_a_day),
    Sight(
        "console-bulk-all",
        _at(f"{RUNS}/bulk/all/?verb=pause&back=%3Fshow%3Dpeople"),
        "admin",
        "What it would do to",
        act=_look_at_all,
    ),
    Sight("console-bulk", _at(f"{RUNS}/?show=people"), "admin", "Pause it", act=_choose_all),
    Sight("console-verdict", _at(f"{RUNS}/?show=doubt"), "admin", "Your verdict", act=_open_doubt),
    Sight("console-run-hostile", _console("hostile"), "admin", "Steps in time"),
    Sight("console-ledger-hostile", _console("hostile", "ledger/"), "admin", "window.hostile=3"),
    Sight("console-run-endless", _console("endless", "state/"), "admin", "What it knows"),
    Sight("console-dashboard", _at(f"{CONSOLE}/"), "admin", "Half within", act=_open_figures),
    Sight("console-providers-hostile", _at(f"{CONSOLE}/providers/"), "admin", "window.hostile=1"),
    Sight(
        "console-provider-hostile",
        _at(f"{CONSOLE}/provider/{quote('<img src=x onerror=hostile=1>')}/"),
        "admin",
        "What became of it",
    ),
    Sight(
        "console-pause-refused",
        _at(f"{CONSOLE}/do/pause/payments/"),
        "admin",
        "the reason stays on the record",
        act=_pause_without_a_reason,
    ),
    Sight("console-workers-hostile", _at(f"{CONSOLE}/workers/"), "admin", "Workflows that it knows"),
    Sight("health-red", _at(HEALTH), "admin", "Something does not go on by itself", error=503),
    Sight("health-red-told", _at(HEALTH), "agent", "Tell whoever operates the workflows", error=503),
    Sight("health-well", _at(HEALTH), "admin", "All goes on by itself", skins=(UNFOLD,)),
    Sight("not-found", _at("/orders/none/"), "agent", "no such"),
    Sight("mails", _at("/"), "", "Nothing here was sent on", skins=(MAILS,)),
    Sight("mail-hostile", _at("/?to=script"), "", "window.hostile=1", skins=(MAILS,), act=_open_mail("<img src=x")),
    Sight("run-endless", _run("endless"), "manager", "refund", focus=".df", skins=ADMINS),
)
"""All pages of the grid."""
