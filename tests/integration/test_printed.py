"""`plan` and `matrix` print what a workflow declares, and what `core` would decide; nothing is run, no row is read."""

from datetime import time, timedelta

import pytest

from durableflows import (
    Approvers,
    Band,
    Budget,
    Escalate,
    Facts,
    Fallback,
    Retry,
    Run,
    StepReturn,
    Until,
    Workflow,
    WorkflowState,
    approval,
    child,
    sleep,
    step,
)
from durableflows.core import registry
from durableflows.core.definition import StepKind
from durableflows.core.layout import edges
from durableflows.management import matrices, matrix, plans
from tests.integration.test_command import data, said
from tests.support.asking import USD_500, Lower, grant
from tests.support.flows import Provider, pay_effect, pay_workflow, read_event
from tests.support.ledgers import Office, hire_workflow
from tests.support.parcels import Depot, parcel_workflow
from tests.support.rooms import Hotel, stay_workflow
from tests.support.trips import Agency, trip_workflow
from tests.support.waits import waiting_workflow


@pytest.fixture(autouse=True)
def alone():
    with registry.isolated():
        yield


class Nothing(WorkflowState):
    """Nothing is kept."""


def asking_workflow() -> type[Workflow[Nothing]]:
    def show(run: Run[Nothing]) -> Facts:
        return Facts(binding={})

    def still_wanted(run: Run[Nothing]) -> bool:
        raise AssertionError("nothing is run")

    class Ask(Workflow[Nothing]):
        """Ask, and ask again."""

        name, version, deadline = "ask", 3, timedelta(days=9, hours=12)
        budget = Budget(tool_calls=7, idle=timedelta(hours=90))

        sign_off = approval(
            title="Do it \x1b[2J",
            shows=show,
            permission="app.first",
            quorum=2,
            exclude_requester=False,
            expires=timedelta(hours=36),
            on_expiry=Escalate("app.second", expires=timedelta(minutes=90)),
            approved="act",
            rejected="leave",
        )

        @step(start=True, to="sign_off", retry=Retry(attempts=1))
        def begin(self, run: Run[Nothing]) -> None: ...

        @step(end=True, queue="slow", timeout_seconds=5, recheck=still_wanted, on_refused="leave", on_failure="leave")
        def act(self, run: Run[Nothing]) -> None: ...

        @step(end=True)
        def leave(self, run: Run[Nothing]) -> None: ...

    return Ask


def test_a_plan_says_who_is_asked_and_what_follows():
    asking_workflow()

    text = said("plan", "ask")

    assert text.startswith(
        "ask, version 3: Ask, and ask again.\n"
        "ends after 9 d 12 h at the latest; a run may use tool_calls 7, idle 3 d 18 h\n"
    )
    for line in (
        "  begin: begins here",
        "    approved: -> act",
        "    rejected: -> leave",
        "    2 people with app.first, within 1 d 12 h",
        "    then people with app.second, within 1 h 30 min",
        "  act: queue slow, may end the run",
        "    refused: -> leave",
        "    failed: -> leave",
        "    before the first send: still_wanted",
        "    one try, each within 60 s",
    ):
        assert line in text.splitlines()
    assert "\x1b" not in text


def test_a_plan_says_who_is_asked_about_how_much_until_when():
    grant(
        bands=[Band(USD_500, None), Band(None, Approvers("app.may", groups=["finance"], quorum=2))],
        amount="amount",
        edits=Lower,
        expires=Until(time(17), days=1, zone="Europe/Berlin"),
        on_expiry=Escalate(people=["ada", "bob"], then=Fallback("later")),
    )

    lines = said("plan", "grant").splitlines()

    for line in (
        "    up to USD 500.00: nobody is asked",
        "    above USD 500.00: 2 of people with the permission app.may or members of finance",
        "    until 17:00 (Europe/Berlin), 1 day later, but not who started the run",
        "    then 2 of ada or bob, until 17:00 (Europe/Berlin), 1 day later",
        "    then later",
        "    may change amount",
        "    nobody answered: -> later",
    ):
        assert line in lines
    steps = {one["name"]: one for one in data("plan", "grant")["steps"]}
    bands = steps["sign_off"]["approval"]["bands"]
    assert [band["amounts"] for band in bands] == ["up to USD 500.00", "above USD 500.00"]


def test_a_plan_for_programs_has_every_edge_and_limit():
    asking_workflow()

    seen = data("plan", "ask", "--version", "3")

    assert (seen["deadline_seconds"], seen["budget"]) == (820800, {"tool_calls": 7, "idle_seconds": 324000})
    steps = {one["name"]: one for one in seen["steps"]}
    assert steps["act"]["edges"] == [{"to": "leave", "when": "refused"}, {"to": "leave", "when": "failed"}]
    assert (steps["act"]["task"], steps["act"]["queue"], steps["act"]["recheck"]) == ("ask.act", "slow", "still_wanted")
    rung = {"permission": "app.second", "groups": [], "people": [], "quorum": 2}
    assert steps["sign_off"]["approval"]["then_asks"] == [{**rung, "expires_seconds": 5400, "remind_seconds": []}]
    assert steps["begin"]["retry"]["attempts"] == 1


@pytest.mark.parametrize(
    ("effect", "says"),
    [
        ({}, ["sent again under its key, within 23 h 59 min", "then looked up by find", "not found: a person decides"]),
        ({"key_window": None}, ["an answer that is lost: looked up by find"]),
        ({"key_window": None, "with_lookup": False}, ["an answer that is lost: a person finds out"]),
        ({"resend_when_absent": True}, ["not found: sent again under a new key"]),
    ],
)
def test_a_plan_says_how_a_lost_answer_is_settled(effect: dict[str, object], says: list[str]):
    """S2.38."""
    provider = Provider()
    pay_workflow(provider, pay_effect(provider, **effect))  # type: ignore[arg-type]

    text = said("plan", "pay")

    for words in says:
        assert words in text
    assert "an answer that says pending" in text
    assert provider.sends == []


def test_what_the_provider_tells_is_waited_for_where_there_is_no_lookup():
    """R20: until `accepted_within` is over nobody is asked."""
    provider = Provider()
    pay_workflow(provider, pay_effect(provider, with_lookup=False, event=read_event))

    rows = {row["effect"]: row for row in data("matrix", "pay")["effects"]["test.pay"]}

    assert "an answer that says pending: the provider tells when it is done, after 2 d a person looks" in said(
        "plan", "pay"
    )
    assert rows["accepted, not done"]["run_goes_on"] == "waits for the provider's word"
    assert rows["accepted, for too long"]["run_goes_on"] == "a person decides"


def test_a_plan_says_that_the_provider_tells_beside_the_lookup():
    provider = Provider()
    pay_workflow(provider, pay_effect(provider, event=read_event))

    assert "an answer that says pending: looked up, or told by the provider, until it is done" in said("plan", "pay")


def test_a_plan_names_the_ways_to_wait_that_a_body_uses():
    waiting_workflow()

    steps = {one["name"]: one["waits"] for one in data("plan", "waiting")["steps"]}

    assert steps["begin"] == ["sleep", "wait_for", "child", "each"]
    assert steps["slow"] == []
    assert "may return sleep, wait_for, child, each" in said("plan", "waiting")


def test_what_a_run_is_asked_for_is_no_way_to_wait():
    class Reads(Workflow[Nothing]):
        name, deadline = "reads", timedelta(days=1)

        @step(start=True, to="end")
        def begin(self, run: Run[Nothing]) -> StepReturn:
            run.note(f"{run.child}")  # an attribute that is called like the way
            return sleep(timedelta(days=1), then=self.end)

        @step(end=True)
        def end(self, run: Run[Nothing]) -> StepReturn:
            return child("reads", {}, then=self.end) if run.child is None else None

    steps = {one["name"]: one["waits"] for one in data("plan", "reads")["steps"]}

    assert steps == {"begin": ["sleep"], "end": ["child"]}


def test_a_plan_as_a_graph_draws_every_step_edge_and_effect():
    workflow = parcel_workflow(Depot()).definition

    text = said("plan", "send", "--graph")

    assert text.startswith("flowchart TD\n    begin((begin)) --> step_pack\n")
    for node in workflow.steps.values():
        assert f"    step_{node.name}" in text
        for to, when in edges(node):
            assert f"    step_{node.name} -->{f'|{when}|' if when else ''} step_{to}\n" in text
    assert text.count("-.->") == 2
    assert data("plan", "send", "--graph")["mermaid"] == text.strip()


def test_a_plan_says_what_cleans_up_before_which_end():
    workflow = stay_workflow(Hotel(), within=timedelta(minutes=30)).definition

    assert "before it ends as CANCELLED: free, within 30 min" in plans.as_lines(workflow)
    assert "    failed((failed)) --> step_tell_desk" in plans.as_mermaid(workflow).splitlines()
    assert plans.as_data(workflow)["cleanup"] == {"on_failure": "tell_desk", "on_cancel": "free"}


def test_a_workflow_that_is_not_known_is_named_with_what_is():
    asking_workflow()

    for verb in ("plan", "matrix"):
        assert "did you mean 'ask'" in said(verb, "asc", code=1)
        assert "no version 9" in said(verb, "ask", "--version", "9", code=1)


def test_a_matrix_says_what_follows_where_a_step_declares_it():
    """S2.39."""
    asking_workflow()

    steps = data("matrix", "ask")["steps"]
    act = {row["attempt"]: row for row in steps["act"]}
    begin = {row["attempt"]: row for row in steps["begin"]}

    assert act["failed: permanent"]["tries_left"] == "step FAILED_PERMANENT, goes on with `leave`"
    assert act["the recheck refused"]["none_left"] == "step FAILED_PERMANENT, goes on with `leave`"
    assert begin["failed: permanent"]["tries_left"] == "step FAILED_PERMANENT, run ends as FAILED"
    assert begin["failed: transient"]["tries_left"] == "run PARKED (needs a person)"
    assert "the recheck refused" not in begin
    assert "an approval asked its question" in {row["attempt"] for row in steps["sign_off"]}


def test_a_matrix_says_what_follows_where_an_undo_fails():
    """P6: it ends no run and parks none."""
    trip_workflow(Agency())

    shown = data("matrix", "trip")
    rows = {row["attempt"]: row for row in shown["steps"]["sleep_over.undo"]}

    left = "its effect is UNDO_FAILED, and the next undo begins"
    assert rows["failed: permanent"] == {"attempt": "failed: permanent", "tries_left": left, "none_left": left}
    assert rows["failed: transient"]["tries_left"] == "step RETRY_SCHEDULED, after a delay"
    assert rows["failed: transient"]["none_left"] == left
    assert not [row for row in rows.values() if "run " in row["tries_left"] + row["none_left"]]
    assert "hotels.cancel" in shown["effects"]
    assert "step sleep_over.undo:" in said("matrix", "trip")


def test_a_matrix_says_what_goes_before_the_end_of_a_run_that_fails():
    """P6: what it did is undone, and then it cleans up; a run that was undone does not end as FAILED."""
    trip_workflow(Agency(), cleanup=True)
    stay_workflow(Hotel())

    fly = {row["attempt"]: row for row in data("matrix", "trip")["steps"]["fly"]}
    pay = {row["attempt"]: row for row in data("matrix", "stay")["steps"]["pay"]}

    undone = "step FAILED_PERMANENT, what was done is undone, `tidy` cleans up, run ends as COMPENSATED"
    assert fly["failed: permanent"]["tries_left"] == undone
    assert pay["failed: permanent"]["none_left"] == "step FAILED_PERMANENT, `tell_desk` cleans up, run ends as FAILED"
    assert fly["failed: limit reached"]["tries_left"] == "step CANCELLED, run ends as EXHAUSTED_BUDGET"
    assert fly["failed: error in our code"]["tries_left"] == "run PARKED (error in our code)"


def test_a_matrix_says_what_follows_where_a_clean_up_fails():
    """P6: it parks no run, and how the run ends is known."""
    stay_workflow(Hotel())

    steps = data("matrix", "stay")["steps"]
    desk = {row["attempt"]: row for row in steps["tell_desk"]}
    later = {row["attempt"]: row for row in steps["later"]}

    over = "the clean-up ends here, and the run as it was going to"
    assert desk["failed: error in our code"]["tries_left"] == over
    assert desk["failed: permanent"]["tries_left"] == over
    assert later["its worker died before anything was sent, for the 3rd time"]["none_left"] == over
    assert desk["failed: transient"]["tries_left"] == "step RETRY_SCHEDULED, after a delay"
    assert not [row for rows in (desk, later) for row in rows.values() if "run PARKED" in row["none_left"]]


def test_a_matrix_has_no_doubt_where_a_step_only_writes_with_its_effects():
    hire_workflow(Office())

    steps = data("matrix", "hire")["steps"]

    assert not [row for rows in steps.values() for row in rows if "doubt" in row["attempt"]]
    assert not [row for rows in steps.values() for row in rows if "RECONCILIATION" in row["none_left"]]


def test_a_matrix_says_what_each_effect_needs_next():
    provider = Provider()
    pay_workflow(provider, pay_effect(provider, with_lookup=False))

    rows = {row["effect"]: row for row in data("matrix", "pay")["effects"]["test.pay"]}
    text = said("matrix", "pay")

    assert rows["in doubt, within the key's time"]["run_goes_on"] == "sent again, same key"
    assert rows["in doubt, the key's time is over"]["run_goes_on"] == "a person decides"
    assert rows["accepted, for too long"]["run_goes_on"] == "a person decides"
    assert rows["a person said that it did not happen"]["run_goes_on"] == "sent again, new key"
    assert "a lookup did not find it" not in rows
    assert "effect test.pay:" in text


def test_every_row_of_a_matrix_stands_in_the_general_one():
    """One source: what the page says in general is what a workflow's own matrix says."""
    general = {name for name, *_ in matrix.failures()}

    workflow = parcel_workflow(Depot()).definition
    own = {str(row["attempt"]) for one in workflow.steps.values() for row in matrices.of_step(workflow, one)}

    assert {name for name in own if not name.startswith("its worker died")} <= general
    assert {one.kind for one in workflow.steps.values()} == set(StepKind) - {StepKind.UNDO}  # the engine adds those


def test_without_a_workflow_the_matrix_is_the_page():
    assert said("matrix").strip() == matrix.page().strip()
    assert set(data("matrix")) == {"exceptions", "libraries", "http_answers", "failures", "losses", "effects"}


@pytest.mark.parametrize(
    ("delta", "words"),
    [
        (timedelta(days=14), "14 d"),
        (timedelta(hours=23, minutes=59, seconds=30), "23 h 59 min"),
        (timedelta(seconds=90), "1 min 30 s"),
        (timedelta(milliseconds=500), "0.5 s"),
        (timedelta(0), "0 s"),
    ],
)
def test_a_span_in_words(delta: timedelta, words: str):
    assert plans.span(delta) == words
