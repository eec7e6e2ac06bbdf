"""What the verbs do with input that does not fit: refused by name, all problems at once, and nothing changes."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import AnonymousUser, Permission

from durableflows import (
    FactsChanged,
    InvalidState,
    NotAllowed,
    NotFoundError,
    Run,
    TooLate,
    UnknownOutcome,
    UnknownWorkflow,
    Workflow,
    WorkflowState,
    api,
    step,
)
from durableflows.core import registry
from durableflows.core.states import EffectState, RunState
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.testing import World, virtual
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow

pytestmark = pytest.mark.django_db(transaction=True)

NOWHERE = UUID(int=0)
UNSTORABLE = ["a\x00b", "\ud800"]
WRONG_IDS = ["x", "", None, 5, "a\x00", "9" * 40, str(NOWHERE), NOWHERE]


class Sizes(WorkflowState):
    """Fields of each kind that a caller gets wrong."""

    name: str
    count: int
    share: float = 0.0
    tags: list[str] = []


@pytest.fixture
def world():
    with registry.isolated(), virtual() as world:
        yield world


@pytest.fixture
def sizes(world: World) -> type[Workflow[Sizes]]:
    class Sized(Workflow[Sizes]):
        """Does nothing with them."""

        name, version = "sized", 1
        deadline = timedelta(days=1)

        @step(start=True, end=True)
        def only(self, run: Run[Sizes]) -> None:
            run.note("here")

    return Sized


@pytest.fixture
def people(django_user_model) -> dict[str, Any]:
    make = django_user_model.objects.create_user
    return {"boss": django_user_model.objects.create_superuser("boss"), "asker": make("asker"), "other": make("other")}


@pytest.fixture
def asked(world: World, people: dict[str, Any]) -> ApprovalRequest:
    run = api.start(pay_workflow(Provider()), {"amount": 5, "ask": True}, by=people["asker"])
    world.run_until_idle()
    return run.requests.get()


@pytest.fixture
def doubtful(world: World) -> SideEffect:
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("cut"))])
    api.start(pay_workflow(provider, pay_effect(provider, key_window=None, with_lookup=False)), {"amount": 5})
    world.run_until_idle()
    world.clock.advance(60)
    world.run_until_idle()
    return SideEffect.objects.get()


def everything() -> tuple[object, ...]:
    """All that a refusal must leave as it was."""
    versions = [list(model.objects.order_by("pk").values_list("pk", "row_version", "state")) for model in
                (WorkflowRun, StepRun, SideEffect, ApprovalRequest)]  # fmt: skip
    return (*versions, RunEvent.objects.count())


@pytest.mark.parametrize(
    ("state", "paths"),
    [
        ({"name": 5, "count": "6", "share": float("nan"), "more": 1}, {"name", "count", "share", "more"}),
        ({}, {"name", "count"}),
        ({"name": "a", "count": True, "share": float("inf")}, {"count", "share"}),
        ({"name": "a\x00b", "count": 1, "tags": ["fine", "\x00"]}, {"name", "tags.1"}),
        ({"name": "a", "count": 1, "tags": ("a",)}, {"tags"}),
        ({"name": "a", "count": 1, 7: 1}, {"7"}),
    ],
)
def test_a_state_that_does_not_fit_is_refused_with_all_problems(
    sizes: type[Workflow[Sizes]], state: Any, paths: set[str]
):
    """S1.21, S3.1, R30: NaN, extra, missing, ill-typed and unstorable values, all named, no row."""
    with pytest.raises(InvalidState) as refused:
        api.start(sizes, state)

    assert {path for path, _ in refused.value.problems} == paths
    assert all(path in str(refused.value) for path in paths)
    assert not WorkflowRun.objects.exists()


@pytest.mark.parametrize("state", [None, 5, "text", [("name", "a"), ("count", 1)], {"name": "\ud800", "count": 1}])
def test_what_is_no_state_is_refused(sizes: type[Workflow[Sizes]], state: Any):
    with pytest.raises(InvalidState):
        api.start(sizes, state)

    assert not WorkflowRun.objects.exists()


@pytest.mark.parametrize(
    ("workflow", "version"),
    [("size", None), ("", None), ("sized", 2), ("sized", "x"), (None, None), (int, None), (5, 1)],
)
def test_an_unknown_workflow_or_version_is_named(sizes: type[Workflow[Sizes]], workflow: Any, version: Any):
    with pytest.raises(UnknownWorkflow):
        api.start(workflow, {"name": "a", "count": 1}, version=version)

    assert not WorkflowRun.objects.exists()


def test_a_misspelt_workflow_is_told_what_was_meant(sizes: type[Workflow[Sizes]]):
    with pytest.raises(UnknownWorkflow, match="did you mean 'sized'"):
        api.start("seized", {"name": "a", "count": 1})


@pytest.mark.parametrize(
    "given",
    [
        *[{"key": text} for text in [*UNSTORABLE, "x" * 201, None, 5]],
        *[{"tenant": text} for text in [*UNSTORABLE, "x" * 101, None]],
        *[{"labels": {"a": text}} for text in [*UNSTORABLE, "x" * 101, 5, None]],
        {"labels": {"\x00": "a"}},
        {"labels": {str(number): "a" for number in range(21)}},
        {"labels": ["a"]},
        {"labels": 5},
    ],
)
def test_keys_tenants_and_labels_that_cannot_be_stored_are_refused(sizes: type[Workflow[Sizes]], given: dict[str, Any]):
    """R30: refused by us and by name, not by the database."""
    with pytest.raises(InvalidState, match=next(iter(given))):
        api.start(sizes, {"name": "a", "count": 1}, **given)

    assert not WorkflowRun.objects.exists()


def test_emoji_and_a_written_out_escape_stay_as_they_are(world: World, sizes: type[Workflow[Sizes]]):
    """R30: the literal six characters are not NUL."""
    text = "\\u0000 \U0001f600 ü"

    run = api.start(sizes, {"name": text, "count": 1}, key=text, tenant=text, labels={text: text})
    world.run_until_idle()
    api.start(sizes, {"name": text, "count": 1}, key=text, tenant=text)

    kept = WorkflowRun.objects.get(pk=run.pk)
    assert (kept.data["name"], kept.business_key, kept.tenant, kept.labels) == (text, text, text, {text: text})
    assert kept.state == RunState.SUCCEEDED


@pytest.mark.parametrize("wrong", WRONG_IDS, ids=repr)
def test_a_wrong_id_is_not_found(asked: ApprovalRequest, people: dict[str, Any], wrong: Any):
    boss = people["boss"]
    before = everything()

    for call in (
        lambda: api.get(wrong),
        lambda: api.explain(wrong),
        lambda: api.cancel(wrong, reason="x"),
        lambda: api.retry(wrong, reason="x"),
        lambda: api.answer(wrong, "approve", by=boss, facts_digest=asked.facts_digest),
        lambda: api.resolve_effect(wrong, "happened", reason="x", row_version=1, receipt={"id": "x"}),
    ):
        with pytest.raises(NotFoundError):
            call()

    assert everything() == before


def test_an_id_of_another_kind_is_not_found(asked: ApprovalRequest, people: dict[str, Any]):
    with pytest.raises(NotFoundError):
        api.answer(asked.run_id, "approve", by=people["boss"], facts_digest=asked.facts_digest)
    with pytest.raises(NotFoundError):
        api.get(asked.pk)


@pytest.mark.parametrize("person", ["other", "anonymous"])
def test_somebody_else_s_run_is_not_there(asked: ApprovalRequest, people: dict[str, Any], person: str):
    """S2.25: not even a hint that it exists."""
    stranger = people.get(person, AnonymousUser())
    before = everything()
    said = set()

    for call in (
        lambda run: api.get(run, by=stranger),
        lambda run: api.explain(run, by=stranger),
        lambda run: api.cancel(run, by=stranger, reason="x"),
        lambda run: api.retry(run, by=stranger, reason="x"),
    ):
        for run in (asked.run_id, NOWHERE):
            with pytest.raises(NotFoundError) as refused:
                call(run)
            said.add(str(refused.value).replace(str(run), "ID"))

    assert len(said) == 1
    assert everything() == before


def test_the_owner_sees_and_cancels_and_does_nothing_more(asked: ApprovalRequest, people: dict[str, Any]):
    """S2.25, R27."""
    asker = people["asker"]

    assert api.get(asked.run_id, by=asker).pk == asked.run_id
    with pytest.raises(NotAllowed, match="operate_run"):
        api.retry(asked.run_id, by=asker, reason="x")
    with pytest.raises(NotAllowed, match="yourself"):
        api.answer(asked.pk, "approve", by=asker, facts_digest=asked.facts_digest)
    api.cancel(asked.run_id, by=asker, reason="x")
    assert api.get(asked.run_id, by=asker).state == RunState.CANCELLED


def test_a_superuser_does_not_answer_the_own_request(world: World, people: dict[str, Any]):
    """R27: for superusers too."""
    run = api.start(pay_workflow(Provider()), {"amount": 5, "ask": True}, by=people["boss"])
    world.run_until_idle()
    own = run.requests.get()

    with pytest.raises(NotAllowed, match="yourself"):
        api.answer(own.pk, "approve", by=people["boss"], facts_digest=own.facts_digest)

    assert not own.decisions.exists()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"verdict": "yes"}, InvalidState),
        ({"verdict": None}, InvalidState),
        ({"verdict": "expire"}, InvalidState),
        ({"by": None}, NotAllowed),
        ({"by": AnonymousUser()}, NotFoundError),
        ({"facts_digest": ""}, FactsChanged),
        ({"facts_digest": None}, FactsChanged),
        ({"facts_digest": "x" * 1000}, FactsChanged),
        *[({"comment": text}, InvalidState) for text in [*UNSTORABLE, "x" * 4001, None, 5]],
        *[({"door": text}, InvalidState) for text in [*UNSTORABLE, "x" * 41]],
        *[({"origin": text}, InvalidState) for text in [*UNSTORABLE, None]],
    ],
)
def test_an_answer_that_does_not_fit_decides_nothing(
    asked: ApprovalRequest, people: dict[str, Any], given: dict[str, Any], error: type[Exception]
):
    """R30, R25."""
    fitting = {"verdict": "approve", "by": people["boss"], "facts_digest": asked.facts_digest}
    before = everything()

    with pytest.raises(error):
        api.answer(asked.pk, **{**fitting, **given})

    assert everything() == before
    assert not asked.decisions.exists()


def test_an_answer_needs_the_right(asked: ApprovalRequest, people: dict[str, Any]):
    """R26: without it, the request is not even there; without an active account neither."""
    with pytest.raises(NotFoundError):
        api.answer(asked.pk, "approve", by=people["other"], facts_digest=asked.facts_digest)
    people["boss"].is_active = False
    people["boss"].save()
    with pytest.raises((NotAllowed, NotFoundError)):
        api.answer(asked.pk, "approve", by=people["boss"], facts_digest=asked.facts_digest)

    assert not asked.decisions.exists()


def test_who_may_see_every_request_answers_none_without_its_right(asked: ApprovalRequest, people: dict[str, Any]):
    """P9: an auditor finds the request, and that is all."""
    auditor = people["other"]
    auditor.user_permissions.add(Permission.objects.get(codename="view_approvalrequest"))
    auditor = type(auditor).objects.get(pk=auditor.pk)

    with pytest.raises(NotAllowed, match="answer_approval is needed"):
        api.answer(asked.pk, "approve", by=auditor, facts_digest=asked.facts_digest)

    assert not asked.decisions.exists()


@pytest.mark.parametrize("verb", [api.cancel, api.retry])
@pytest.mark.parametrize("reason", [*UNSTORABLE, "x" * 4001, None, 5], ids=lambda reason: repr(reason)[:10])
def test_a_reason_that_cannot_be_kept_is_refused(asked: ApprovalRequest, verb: Any, reason: Any):
    """R30, S2.8."""
    before = everything()

    with pytest.raises(InvalidState, match="reason"):
        verb(asked.run_id, reason=reason)

    assert everything() == before


@pytest.mark.parametrize("how", ["succeeded", "cancelled"])
def test_an_ended_run_is_not_cancelled_or_retried(world: World, how: str):
    """R34: "already finished", and no event that says otherwise."""
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    if how == "cancelled":
        api.cancel(run.pk, reason="no")
    world.run_until_idle()
    before = everything()

    with pytest.raises(TooLate, match=how if how == "cancelled" else "finished"):
        api.cancel(run.pk, reason="late")
    with pytest.raises(TooLate):
        api.retry(run.pk, reason="late")

    assert everything() == before


def test_a_run_that_waits_for_nothing_is_not_retried(asked: ApprovalRequest):
    before = everything()

    with pytest.raises(TooLate, match="nothing of it waits for a retry"):
        api.retry(asked.run_id, reason="please")

    assert everything() == before


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"verdict": "maybe"}, InvalidState),
        ({"verdict": None}, InvalidState),
        ({"by": "other"}, NotAllowed),
        ({"by": "anonymous"}, NotAllowed),
        *[({"reason": text}, InvalidState) for text in [*UNSTORABLE, "", " ", None, "x" * 4001]],
        *[({"receipt": value}, InvalidState) for value in (None, {}, "pay_1", 5, {"id": float("nan")}, {"id": 5})],
        ({"receipt": {"reference": "of another shape"}}, InvalidState),
        ({"row_version": 0}, TooLate),
        ({"row_version": None}, TooLate),
    ],
)
def test_a_verdict_that_does_not_fit_settles_nothing(
    doubtful: SideEffect, people: dict[str, Any], given: dict[str, Any], error: type[Exception]
):
    """P5, R30: the step would go on with this receipt, so it must be one."""
    if isinstance(given.get("by"), str):
        given = {"by": people.get(given["by"], AnonymousUser())}
    fitting = {"verdict": "happened", "reason": "seen", "row_version": doubtful.row_version, "receipt": {"id": "pay_1"}}
    before = everything()

    with pytest.raises(error):
        api.resolve_effect(doubtful.pk, **{**fitting, **given})

    assert everything() == before


def test_a_receipt_with_nul_is_kept_marked(world: World, doubtful: SideEffect):
    """R30: what a person saw at the provider is a fact, and never lost."""
    api.resolve_effect(
        doubtful.pk,
        "happened",
        reason="seen",
        row_version=doubtful.row_version,
        receipt={"id": "pay\x00\ud800 \\u0000"},
    )
    world.run_until_idle()

    row = SideEffect.objects.get()
    assert (row.state, row.receipt) == (EffectState.CONFIRMED, {"id": "pay⟦U+0000⟧⟦U+D800⟧ \\u0000"})
    assert WorkflowRun.objects.get().state == RunState.SUCCEEDED


def test_a_reference_is_enough_where_no_step_goes_on_with_it(world: World, doubtful: SideEffect):
    """P15: a run that is being cancelled only needs to know."""
    api.cancel(doubtful.run_id, reason="stop")
    row = SideEffect.objects.get()

    api.resolve_effect(row.pk, "happened", reason="seen", row_version=row.row_version, receipt={"reference": "4711"})
    world.run_through()

    assert WorkflowRun.objects.get().state == RunState.CANCELLED
