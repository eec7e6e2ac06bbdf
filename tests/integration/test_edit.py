"""`edit`: a person changes fields of a state, of a run that stands still, on record, and never more than was shown."""

from datetime import timedelta
from typing import Any

import pytest

from durableflows import (
    ArtifactRef,
    Budget,
    InvalidState,
    Money,
    NotAllowed,
    NotFoundError,
    Run,
    SecretRef,
    TooLate,
    UnknownOutcome,
    UnknownWorkflow,
    Workflow,
    WorkflowState,
    api,
    claims,
    integrity,
    step,
)
from durableflows.core import registry
from durableflows.core.states import ApprovalState, RunState
from durableflows.doctor import Severity, examine, verify
from durableflows.errors import ChangedOutside
from durableflows.models import ApprovalDecision, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.testing import World, open_request
from tests.integration.test_command import data, said
from tests.support.flows import Provider, act_then_raise, pay_workflow
from tests.support.look import fresh, state_of
from tests.support.parcels import Depot, lost_address, parcel_workflow
from tests.support.play import assert_chain
from tests.support.waits import waiting

pytestmark = pytest.mark.django_db(transaction=True)


def edit(run: WorkflowRun, **changes: object) -> WorkflowRun:
    return api.edit(run.pk, reason="the customer moved", changes=changes)


def paused(world: World, depot: Depot | None = None) -> WorkflowRun:
    run = api.start(parcel_workflow(depot or Depot()), {"rounds": 2})
    api.pause(run.pk, reason="to look")
    return run


def sound() -> None:
    assert [one.text for one in examine() if one.severity is Severity.BROKEN] == []
    assert verify().findings == ()


def test_the_next_attempt_begins_with_the_new_state(world: World, admin_user):
    depot = Depot()
    run = paused(world, depot)

    edited = api.edit(run.pk, by=admin_user, reason="one is enough", changes={"rounds": 1})

    assert (edited.data["rounds"], edited.checkpoint_sequence, edited.state) == (1, 1, RunState.PARKED)
    event = RunEvent.objects.get(run=run, kind="run.edited")
    assert (event.actor_name, event.checkpoint) == ("admin", 1)
    assert event.data == {
        "reason": "one is enough", "checkpoint": 1, "changes": {"rounds": {"old": 2, "new": 1}},
    }  # fmt: skip
    sound()
    assert any(line.text == "State edited by admin (rounds): one is enough" for line in api.explain(run.pk).lines)

    api.resume(run.pk, reason="go on")
    world.run_until_idle()
    assert depot.ran == ["pack", "pack", "pay", "hand_over", "tell"]
    assert state_of(run) is RunState.SUCCEEDED
    assert_chain(fresh(run))
    sound()


def test_a_failed_run_is_edited_before_it_is_redriven(world: World):
    depot = Depot(handing=[lost_address()])
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    assert state_of(run) is RunState.FAILED

    edit(run, note_id="by hand")

    assert (state_of(run), fresh(run).data["note_id"]) == (RunState.FAILED, "by hand")
    api.redrive(run.pk, reason="the address was corrected", step="hand_over")
    world.run_until_idle()
    assert state_of(run) is RunState.SUCCEEDED
    sound()


def test_what_a_limit_has_ended_is_edited_before_it_is_extended(world: World):
    depot = Depot()
    run = api.start(parcel_workflow(depot, limits=Budget(iterations=1)), {"rounds": 5})
    world.run_until_idle()
    assert state_of(run) is RunState.EXHAUSTED_BUDGET

    edit(run, rounds=0)
    api.extend(run.pk, reason="enough now", budget={"iterations": 1})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    sound()


def test_the_same_values_again_change_nothing(world: World):
    run = paused(world)
    edit(run, rounds=1)
    before = fresh(run).row_version

    assert edit(run, rounds=1).checkpoint_sequence == 1
    assert fresh(run).row_version == before
    assert RunEvent.objects.filter(run=run, kind="run.edited").count() == 1


def test_only_what_was_shown_is_edited(world: World):
    run = paused(world)
    api.edit(run.pk, reason="x", changes={"rounds": 1}, checkpoint=0)

    with pytest.raises(TooLate, match="at checkpoint 1, not 0 any more"):
        api.edit(run.pk, reason="x", changes={"rounds": 5}, checkpoint=0)

    assert fresh(run).data["rounds"] == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "say what changes"),
        ({"round": 1}, "did you mean 'rounds'"),
        ({"rounds": "1"}, "rounds: Input should be a valid integer"),
        ({"rounds": 1, "ask": "yes"}, "ask: Input should be a valid boolean"),
        ({"paid": "a\x00b"}, "cannot be stored"),
        ({"paid": "sk_live_" + "a1b2c3d4" * 3}, "looks like a key or token"),
        ({"paid": "x" * 300_000}, "the limit is"),
        ({"paid": float("nan")}, "paid"),
    ],
)
def test_what_does_not_fit_is_refused_whole_and_never_shown(world: World, changes: dict[str, Any], says: str):
    run = paused(world)

    with pytest.raises(InvalidState) as refused:
        api.edit(run.pk, reason="x", changes=changes)

    assert says in str(refused.value)
    assert "sk_live" not in str(refused.value)
    assert (fresh(run).checkpoint_sequence, fresh(run).data["rounds"]) == (0, 2)


def test_who_may_not_operate_may_not_edit(world: World, django_user_model):
    owner = django_user_model.objects.create_user("owner")
    stranger = django_user_model.objects.create_user("stranger")
    run = api.start(parcel_workflow(Depot()), {}, by=owner)
    api.pause(run.pk, reason="x")

    with pytest.raises(NotAllowed):
        api.edit(run.pk, by=owner, reason="x", changes={"rounds": 1})
    with pytest.raises(NotFoundError):
        api.edit(run.pk, by=stranger, reason="x", changes={"rounds": 1})
    with pytest.raises(InvalidState, match="edit needs a reason"):
        api.edit(run.pk, reason=" ", changes={"rounds": 1})


def going_on(world: World) -> WorkflowRun:
    return api.start(parcel_workflow(Depot()), {})


def succeeded(world: World) -> WorkflowRun:
    run = going_on(world)
    world.run_until_idle()
    return run


def cancelled(world: World) -> WorkflowRun:
    run = going_on(world)
    api.cancel(run.pk, reason="x")
    return run


def in_doubt(world: World) -> WorkflowRun:
    depot = Depot()
    depot.carrier.faults.append(act_then_raise(UnknownOutcome("cut")))
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    api.pause(run.pk, reason="x")
    return run


def ending(world: World) -> WorkflowRun:
    run = in_doubt(world)
    api.resume(run.pk, reason="x")
    api.cancel(run.pk, reason="x")
    return run


def at_work(world: World) -> WorkflowRun:
    run = going_on(world)
    claims.claim(run.pk, StepRun.objects.get(run=run).pk, task_id="A", pid=1)
    api.pause(run.pk, reason="x")
    return run


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (going_on, "it goes on by itself; pause it first"),
        (succeeded, "that is final"),
        (cancelled, "that is final"),
        (in_doubt, "must be settled before the state is changed"),
        (ending, "is ending"),
        (at_work, "a worker is at pack"),
    ],
)
def test_a_run_that_does_not_stand_still_is_refused(world: World, prepare, says: str):
    run = prepare(world)

    with pytest.raises(TooLate, match=says):
        edit(run, rounds=7)

    assert fresh(run).data["rounds"] != 7
    assert api.preview("edit", run.pk, changes={"rounds": 7}).refused


@pytest.mark.parametrize("change", [{"data": {"rounds": 9}}, {"checkpoint_sequence": 5}])
def test_a_state_that_was_changed_from_outside_is_not_made_ours(world: World, change: dict[str, Any]):
    """P13."""
    run = paused(world)
    WorkflowRun.objects.filter(pk=run.pk).update(**change)

    with pytest.raises(InvalidState, match="changed from outside"):
        edit(run, rounds=1)


def test_an_older_checkpoint_that_was_put_back_is_not_made_ours(world: World):
    """P13: its seal is valid."""
    run = paused(world)
    older = WorkflowRun.objects.values("data", "data_digest", "checkpoint_sequence").get(pk=run.pk)
    edit(run, rounds=1)
    WorkflowRun.objects.filter(pk=run.pk).update(**older)

    with pytest.raises(ChangedOutside):
        edit(run, rounds=9)

    assert fresh(run).data["rounds"] == 2


def test_another_release_does_not_edit(world: World):
    run = paused(world)
    run.refresh_from_db()
    run.manifest = {**run.manifest, "structure": "another"}
    integrity.seal(run, run.data, run.checkpoint_sequence)
    run.store("manifest", "data_digest")
    with pytest.raises(InvalidState, match="this code has another send v1"):
        edit(run, rounds=1)

    with registry.isolated(), pytest.raises(UnknownWorkflow):
        edit(run, rounds=1)


def asking(world: World, **options: Any) -> WorkflowRun:
    run = api.start(pay_workflow(Provider(), **options), {"amount": 900, "ask": True})
    world.run_until_idle()
    api.pause(run.pk, reason="the amount is wrong")
    return run


def test_changed_facts_void_votes_and_are_asked_anew(world: World, django_user_model):
    """P9: an answer counts for exactly what was shown."""
    first, second = (django_user_model.objects.create_superuser(name) for name in ("anna", "ben"))
    run = asking(world, quorum=2)
    request = open_request(run.pk)
    shown = request.facts_digest
    api.answer(request.pk, "approve", by=first, facts_digest=shown)
    preview = api.preview("edit", run.pk, changes={"amount": 700})
    assert preview.changes == ("amount: 900 -> 700",)
    assert preview.closes == (f"every vote on the request {request.title!r}: it asks anew",)

    edit(run, amount=700)

    request.refresh_from_db()
    assert (request.state, request.binding["amount"]) == (ApprovalState.OPEN, 700)
    assert ApprovalDecision.objects.get(request=request).voided_reason == "the facts changed"
    for person in (first, second):
        api.answer(request.pk, "approve", by=person, facts_digest=request.facts_digest)
    api.resume(run.pk, reason="go on")
    world.run_until_idle()
    assert state_of(run) is RunState.SUCCEEDED
    assert SideEffect.objects.get(run=run).arguments == {"amount": 700}
    sound()


def test_votes_stay_when_what_they_are_bound_to_stays(world: World, django_user_model):
    first = django_user_model.objects.create_superuser("anna")
    run = asking(world, quorum=2)
    request = open_request(run.pk)
    api.answer(request.pk, "approve", by=first, facts_digest=request.facts_digest)

    edit(run, receipt_id="x")

    assert ApprovalDecision.objects.get(request=request).voided_at is None
    assert api.preview("edit", run.pk, changes={"receipt_id": "y"}).closes == ()


def test_an_approval_that_was_given_for_other_facts_does_not_count(world: World, admin_user):
    provider = Provider()
    run = asking(world)
    request = open_request(run.pk)
    api.answer(request.pk, "approve", by=admin_user, facts_digest=request.facts_digest)
    preview = api.preview("edit", run.pk, changes={"amount": 5000})
    assert preview.closes == (f"the approval of {request.title!r}: it no longer counts",)
    assert preview.begins == ("pay, with the new state, once the run goes on",)

    edit(run, amount=5000)
    api.resume(run.pk, reason="go on")
    world.run_until_idle()

    stored = fresh(run)
    assert (stored.parked_reason, "no longer counts" in stored.parked_detail) == ("needs a person", True)
    assert provider.acts == []
    assert not SideEffect.objects.filter(run=run).exists()


def test_facts_that_cannot_be_computed_on_the_new_state_refuse_it(world: World):
    def picky() -> dict[str, object]:
        if broken:
            raise LookupError("no such customer")
        return {"to": "Ada"}

    broken: list[bool] = []
    run = asking(world, facts=picky)
    broken.append(True)

    with pytest.raises(InvalidState, match="facts of this request cannot be computed"):
        edit(run, amount=1)

    assert fresh(run).data["amount"] == 900


def test_what_steps_were_given_stays_and_the_preview_says_so(world: World):
    run_id = waiting(world, "turn")
    api.pause(run_id, reason="x")

    preview = api.preview("edit", run_id, changes={"way": "signal"})

    assert preview.begins == ("slow for a, with the new state, once the run goes on",)
    assert preview.keeps == ("slow for a: its item", "slow for b: its item")
    api.edit(run_id, reason="x", changes={"way": "signal"})
    assert StepRun.objects.get(run=run_id, item_key="b").input == {"item": "b"}
    sound()


class Kept(WorkflowState):
    """Values of kinds that have a JSON form of their own."""

    amount: Money = Money(5, "EUR")
    scan: ArtifactRef | None = None
    api_key: SecretRef = SecretRef(name="ocr/key")
    text: str = ""


def kept() -> WorkflowRun:
    class Keeping(Workflow[Kept]):
        name, deadline = "keeping", timedelta(days=1)

        @step(start=True, end=True)
        def look(self, run: Run[Kept]) -> None: ...

    run = api.start(Keeping, {})
    api.pause(run.pk, reason="x")
    return run


def test_values_are_given_as_they_are_or_as_json(world: World):
    run = kept()

    assert edit(run, amount=Money(7, "EUR")).data["amount"] == {"amount_minor": 7, "currency": "EUR"}
    assert edit(run, amount={"amount_minor": 8, "currency": "EUR"}).data["amount"]["amount_minor"] == 8
    with pytest.raises(InvalidState, match="amount"):
        edit(run, amount=7)


def test_what_looks_like_a_secret_is_masked_on_record_and_in_the_preview(world: World):
    run = kept()

    preview = api.preview("edit", run.pk, changes={"api_key": {"name": "ocr/other"}})
    edit(run, api_key={"name": "ocr/other"})

    assert preview.changes == ('api_key: "[redacted]" -> "[redacted]"',)
    assert RunEvent.objects.get(run=run, kind="run.edited").data["changes"] == {"api_key": "[redacted]"}
    assert fresh(run).data["api_key"] == {"name": "ocr/other"}


def test_a_large_value_stands_in_the_history_by_its_digest(world: World):
    run = kept()

    edit(run, text="x" * 5000)

    recorded = RunEvent.objects.get(run=run, kind="run.edited").data["changes"]["text"]
    assert (recorded["old"], recorded["new"]["bytes"], len(recorded["new"]["sha256"])) == ("", 5002, 64)
    assert len(api.preview("edit", run.pk, changes={"text": "y" * 5000}).changes[0]) < 500


REASON = ("--reason", "the customer moved")


def test_the_command_shows_first_and_then_does(world: World, admin_user):
    run = paused(world)
    command = ("edit", str(run.pk), *REASON, "--set", "rounds=1", "--set", 'paid="by hand"', "--checkpoint", "0")

    text = said(*command, "--dry-run")
    seen = data(*command, "--dry-run")
    assert text.startswith("nothing was done; edit would be done")
    assert seen["changes"] == ["rounds: 2 -> 1", 'paid: "" -> "by hand"']
    assert seen["begins"] == ["pack, with the new state, once the run goes on"]
    assert fresh(run).checkpoint_sequence == 0

    done = data(*command, "--by", "admin")
    assert (done["checkpoint_sequence"], done["data"]["rounds"], done["state"]) == (1, 1, "PARKED")
    assert "too_late" in said(*command, code=1)
    assert "give each field one value" in said(
        "edit", str(run.pk), *REASON, "--set", "rounds=1", "--set", "rounds=2", code=1
    )
