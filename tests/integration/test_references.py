"""Large values and secrets stay out of rows: references in the state, the bytes in storage, the secret in its vault."""

import hashlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.files.storage import storages
from django.db import connection

from durableflows import (
    ArtifactRef,
    EffectCall,
    Facts,
    InvalidState,
    NeedsHuman,
    NotFoundError,
    Run,
    SecretRef,
    StepReturn,
    Transient,
    Workflow,
    WorkflowState,
    api,
    approval,
    effect,
    step,
    succeed,
)
from durableflows.core.states import RunState
from durableflows.models import ApprovalRequest, Artifact, SideEffect, Signal, WorkflowRun
from durableflows.testing import World
from tests.support.flows import PayReceipt, Provider, pay_effect
from tests.support.look import fresh, state_of

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "sk_live_" + "0123456789abcdef"


class Report(WorkflowState):
    text: str = ""
    scan: ArtifactRef | None = None
    key: SecretRef | None = None


Body = Callable[[Run[Report]], StepReturn]


@pytest.fixture(autouse=True)
def storage(tmp_path: Path, settings) -> Path:
    settings.STORAGES = {
        **settings.STORAGES,
        "artifacts": {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": str(tmp_path)}},
    }
    settings.DURABLEFLOWS = {
        "ARTIFACT_STORAGE": "artifacts",
        "SECRETS": "tests.integration.test_references.read_secret",
        "MAX_ARTIFACT_BYTES": 30_000_000,
    }
    return tmp_path


def read_secret(name: str) -> str:
    if name == "broken":
        raise RuntimeError(f"the vault said {KEY}")
    return {"payments/key": KEY}.get(name, "")


def reporting(first: Body, then: Callable[[Run[Report]], object] | None = None) -> type[Workflow[Report]]:
    class Reporting(Workflow[Report]):
        name, deadline = "reporting", timedelta(days=1)

        @step(start=True, to="after")
        def begin(self, run: Run[Report]) -> StepReturn:
            return first(run)

        @step(end=True)
        def after(self, run: Run[Report]) -> None:
            if then is not None:
                then(run)

    return Reporting


def looking_up(name: str) -> Body:
    def body(run: Run[Report]) -> None:
        run.secret(SecretRef(name=name))

    return body


def stored() -> str:
    """All that the rows of runs and their history hold."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT row_to_json(r)::text FROM durableflows_workflowrun r")
        runs = cursor.fetchall()
        cursor.execute("SELECT row_to_json(e)::text FROM durableflows_runevent e")
        return str([runs, cursor.fetchall()])


def test_twenty_megabytes_are_kept_by_hash_and_the_rows_stay_small(world: World, storage: Path):
    """R31, S3.4, S3.18."""
    scan = b"page " * 4_000_000
    read: list[int] = []

    def keep(run: Run[Report]) -> None:
        run.state.scan = run.artifact("scan.pdf", scan, content_type="application/pdf")

    def look(run: Run[Report]) -> None:
        assert run.state.scan is not None
        read.append(len(run.read_artifact(run.state.scan)))

    run = api.start(reporting(keep, look), {})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert read == [20_000_000]
    assert len(str(fresh(run).data)) < 300
    row = Artifact.objects.get(run=run)
    assert (row.name, row.size_bytes, row.content_type) == ("scan.pdf", 20_000_000, "application/pdf")
    assert max(len(str(arguments)) for _, arguments in world.sent) < 200


def test_a_body_that_runs_again_keeps_one_artifact(world: World, storage: Path):
    tries: list[int] = []

    def keep(run: Run[Report]) -> None:
        run.state.scan = run.artifact("note.txt", "the same text")
        tries.append(1)
        if len(tries) == 1:
            raise Transient("again")

    run = api.start(reporting(keep), {})
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert Artifact.objects.filter(run=run).count() == 1
    assert len([path for path in storage.rglob("*") if path.is_file()]) == 1


def test_an_artifact_that_was_changed_is_not_read(world: World, storage: Path):
    """R31: detected by its hash."""
    seen: list[Exception] = []

    def keep(run: Run[Report]) -> None:
        run.state.scan = run.artifact("note.txt", "pay 5")

    def look(run: Run[Report]) -> None:
        assert run.state.scan is not None
        path = Path(storages["artifacts"].path(Artifact.objects.get(run__pk=run.id).storage_name))
        path.write_text("pay 500")
        with pytest.raises(InvalidState, match="does not match its hash") as changed:
            run.read_artifact(run.state.scan)
        path.unlink()
        with pytest.raises(NotFoundError, match="gone from its storage") as gone:
            run.read_artifact(run.state.scan)
        seen.extend([changed.value, gone.value])

    run = api.start(reporting(keep, look), {})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(seen) == 2


def test_an_artifact_of_another_run_is_not_read(world: World, storage: Path):
    kept: list[ArtifactRef] = []
    flow = reporting(lambda run: kept.append(run.artifact("note.txt", "mine")))
    api.start(flow, {})
    world.run_until_idle()

    def look(run: Run[Report]) -> None:
        with pytest.raises(NotFoundError, match="has no artifact"):
            run.read_artifact(kept[0])

    from durableflows.core import registry

    registry._DEFINITIONS.clear()
    other = api.start(reporting(look), {})
    world.run_until_idle()

    assert state_of(other) is RunState.SUCCEEDED


@pytest.mark.parametrize(("name", "content"), [("", b"x"), ("n", 5), ("x" * 201, b"x"), ("n", b"x" * 30_000_001)])
def test_what_cannot_be_kept_is_refused_and_nothing_is_left(world: World, storage: Path, name: str, content: object):
    def keep(run: Run[Report]) -> None:
        with pytest.raises(InvalidState):
            run.artifact(name, content)  # type: ignore[arg-type]

    run = api.start(reporting(keep), {})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert not Artifact.objects.exists()
    assert not [path for path in storage.rglob("*") if path.is_file()]


def test_a_result_that_is_too_large_points_to_artifacts(world: World):
    run = api.start(reporting(lambda run: succeed("x" * 300_000)), {})
    world.run_until_idle()

    assert state_of(run) is RunState.PARKED
    assert "store it as an artifact" in fresh(run).parked_detail


def test_a_secret_is_looked_up_in_the_step_and_stored_nowhere(world: World):
    """P14, S2.22."""
    used: list[str] = []

    def look(run: Run[Report]) -> None:
        assert run.state.key is not None
        used.append(run.secret(run.state.key))

    run = api.start(reporting(lambda run: None, look), {"key": SecretRef(name="payments/key")})
    world.run_until_idle()

    assert used == [KEY]
    assert state_of(run) is RunState.SUCCEEDED
    assert KEY not in stored() + str(world.sent)


@pytest.mark.parametrize("name", ["nothing", "broken"])
def test_a_secret_that_is_not_there_waits_for_a_person_and_tells_nothing(world: World, name: str):
    run = api.start(reporting(looking_up(name)), {})
    world.run_until_idle()

    parked = fresh(run)
    assert (parked.state, parked.parked_reason) == (RunState.PARKED, "needs a person")
    assert f"secret {name}" in parked.parked_detail
    assert KEY not in stored()


def test_without_a_resolver_the_error_says_what_to_set(world: World, settings):
    settings.DURABLEFLOWS = {}
    run = api.start(reporting(looking_up("x")), {})
    world.run_until_idle()

    assert 'set DURABLEFLOWS["SECRETS"]' in fresh(run).parked_detail


@pytest.mark.parametrize(
    "text", [KEY, f"use {KEY} here", "-----BEGIN PRIVATE KEY-----\nMII", "AKIA" + "A" * 16, "ghp_" + "a" * 36]
)
def test_a_state_that_holds_a_key_is_refused_at_the_start(world: World, text: str):
    """P14: nothing is stored, and the error does not repeat it."""
    with pytest.raises(InvalidState, match=r"text looks like a key or token") as refused:
        api.start(reporting(lambda run: None), {"text": text})

    assert text not in str(refused.value)
    assert not WorkflowRun.objects.exists()


def test_a_step_that_puts_a_key_into_the_state_is_an_error_in_our_code(world: World):
    def leak(run: Run[Report]) -> None:
        run.state.text = KEY

    run = api.start(reporting(leak), {})
    world.run_until_idle()

    assert state_of(run) is RunState.PARKED
    assert "looks like a key" in fresh(run).parked_detail
    assert KEY not in stored()


@pytest.mark.parametrize("where", ["arguments", "facts", "title"])
def test_what_is_sent_or_asked_holds_no_key(world: World, where: str):
    """P14: arguments and facts are rows too."""
    provider = Provider()
    pay = pay_effect(provider)

    @effect(name="post.tell", provider="post", receipt=PayReceipt, key_window=timedelta(hours=24))
    def tell(call: EffectCall, *, text: str) -> PayReceipt:
        return provider.act(call.key, 1)

    class Telling(Workflow[Report]):
        name, deadline = "telling", timedelta(days=1)

        @step(start=True, to=("ask", "done"), effects=(tell, pay))
        def begin(self, run: Run[Report]) -> StepReturn:
            if where == "arguments":
                run.effect(tell, text=KEY)
            return self.ask

        ask = approval(
            title="Send {what}",
            shows=lambda run: Facts(binding={"what": KEY}, context={} if where == "title" else {"key": KEY}),
            permission="durableflows.answer_approval",
            approved="done",
            rejected="done",
        )

        @step(end=True)
        def done(self, run: Run[Report]) -> None: ...

    run = api.start(Telling, {})
    world.run_until_idle()

    assert state_of(run) is RunState.PARKED
    assert "looks like a key" in fresh(run).parked_detail
    assert not SideEffect.objects.exists()
    assert not ApprovalRequest.objects.exists()
    assert KEY not in stored()


def test_a_signal_holds_no_key(world: World):
    run = api.start(reporting(lambda run: None), {})

    with pytest.raises(InvalidState, match="looks like a key"):
        api.signal(run.pk, "told", {"text": KEY})

    assert not Signal.objects.exists()


def test_what_a_dead_worker_has_half_written_is_written_again(world: World, storage: Path):
    read: list[bytes] = []

    def keep(run: Run[Report]) -> None:
        half = storage / "durableflows" / run.id / hashlib.sha256(b"whole").hexdigest()
        half.parent.mkdir(parents=True)
        half.write_bytes(b"wh")
        run.state.scan = run.artifact("scan", b"whole")

    def look(run: Run[Report]) -> None:
        assert run.state.scan is not None
        read.append(run.read_artifact(run.state.scan))

    run = api.start(reporting(keep, look), {})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert read == [b"whole"]


def test_a_project_may_store_what_looks_like_a_key(world: World, settings):
    settings.DURABLEFLOWS = {"REFUSE_SECRETS": False}

    run = api.start(reporting(lambda run: None), {"text": KEY})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED


def test_needs_human_is_what_a_missing_secret_raises() -> None:
    from durableflows import secrets

    with pytest.raises(NeedsHuman, match="has no value"):
        secrets.resolve(SecretRef(name="nothing"))


@pytest.mark.parametrize(
    "given",
    [
        {"ARTIFACT_STORAGE": "nowhere"},
        {"SECRETS": "shop.vault.read"},
        {"SECRETS": "tests.integration.test_references.KEY"},
    ],
)
def test_a_setting_that_leads_nowhere_is_an_error_at_the_start(settings, given: dict[str, object]) -> None:
    from durableflows.checks import check_settings

    settings.DURABLEFLOWS = given

    wanted = "E005" if "ARTIFACT_STORAGE" in given else "E006"
    assert [found.id for found in check_settings(None)] == [f"durableflows.{wanted}"]
