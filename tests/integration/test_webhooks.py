"""The door for events over HTTP: what is signed is kept, what is not leaves no trace (P14, R20)."""

import json
import logging
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from durableflows import InvalidDefinition, api, webhooks
from durableflows.core.states import EffectState, RunState
from durableflows.models import ProviderEvent, SideEffect, WorkflowRun
from durableflows.testing import Boundary, World
from durableflows.webhooks import ProviderWebhook, StripeScheme
from tests.support import webhook_urls
from tests.support.flows import Provider, answer_pending, pay_effect, pay_workflow, read_event, told

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.support.webhook_urls")]
SECRET = "whsec_current"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """The secret is an environment variable, looked up by its name."""
    monkeypatch.setenv("TEST_WEBHOOK_SECRET", SECRET)
    monkeypatch.setattr(webhooks, "_known", {})
    settings.DURABLEFLOWS = {"SECRETS": "durableflows.secrets.from_environment"}


@pytest.fixture
def pending(world: World) -> WorkflowRun:
    """A run whose payment the provider has accepted."""
    provider = Provider(faults=[answer_pending])
    run = api.start(pay_workflow(provider, pay_effect(provider, event=read_event)), {"amount": 5})
    world.run_until_idle()
    return run


def body_of(run: WorkflowRun, event_id: str = "evt_1", **more: Any) -> bytes:
    body = {"id": event_id, "type": "pay.updated", **told("done", key=SideEffect.objects.get(run=run).key), **more}
    return json.dumps({**body, "id": event_id}).encode()


def post(world: World, raw: bytes, *, secret: str = SECRET, header: str | None = None, at: float = 0.0, **extra: Any):
    signed = StripeScheme().sign(raw, secret, world.clock.now().timestamp() + at) if header is None else header
    headers = {"Stripe-Signature": signed} if signed else {}
    client = Client(enforce_csrf_checks=True)
    return client.post(extra.pop("to", "/named/"), raw, content_type="application/json", headers=headers, **extra)


def event_in(run: WorkflowRun) -> Any:
    """The reader of this provider knows effects by `pay_1`, and events by the name of their envelope."""
    return ProviderEvent.objects.get(effect__run=run)


@pytest.fixture(autouse=True)
def reads_envelopes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In these bodies `id` is the event's: the act's own name is always the first one's."""
    original = read_event
    monkeypatch.setattr("tests.integration.test_webhooks.read_event", lambda body: original({**body, "id": "pay_1"}))


def test_a_signed_event_settles_its_effect(world: World, pending: WorkflowRun):
    answer = post(world, body_of(pending))
    world.run_until_idle()

    assert (answer.status_code, answer.content) == (200, b"stored\n")
    event = event_in(pending)
    assert (event.provider, event.event_id, event.kind, event.verdict) == ("test", "evt_1", "pay.updated", "settled")
    assert WorkflowRun.objects.get(pk=pending.pk).state == RunState.SUCCEEDED


def test_copies_are_answered_as_the_first_one_is(world: World, pending: WorkflowRun):
    """R20: success answers to all copies, also those that are sent again with a newer signature."""
    assert [post(world, body_of(pending), at=at).status_code for at in (0, 0, 10, 200)] == [200] * 4
    assert event_in(pending).copies == 4


FORGED = {
    "none": "",
    "no time": "v1=00",
    "no signature": "t=1767603600",
    "two times": "t=1767603600,t=1767603600,v1=00",
    "other form": "nonsense",
    "not a time": "t=-1,v1=00",
    "other scheme": "t=1767603600,v0=00",
    "not ascii": "t=1767603600,v1=ÿ",
    "many": "t=1767603600," + ",".join(["v1=00"] * 17),
    "long": "t=1767603600,v1=" + "0" * 5000,
    "wrong": "t=1767603600,v1=" + "0" * 64,
}


@pytest.mark.parametrize("name", sorted(FORGED))
def test_what_is_not_signed_leaves_no_trace_and_costs_no_query(
    world: World, name: str, caplog: pytest.LogCaptureFixture
):
    """P14: neither the body nor the secret is logged, and junk reaches no database."""
    caplog.set_level(logging.DEBUG)
    with CaptureQueriesContext(connection) as queries:
        answer = post(world, b'{"id": "evt_1", "card": "4242424242424242"}', header=FORGED[name])

    assert answer.status_code == 400
    assert len(queries) == 0
    assert not ProviderEvent.objects.exists()
    assert SECRET not in caplog.text
    assert "4242424242424242" not in caplog.text
    assert "a webhook of test was refused with 400" in caplog.text


def test_each_byte_is_signed(world: World, pending: WorkflowRun):
    raw = body_of(pending)
    header = StripeScheme().sign(raw, SECRET, world.clock.now().timestamp())

    assert post(world, raw + b" ", header=header).status_code == 400
    assert post(world, raw.replace(b"done", b"fail"), header=header).status_code == 400
    assert post(world, raw, header=header.replace("t=1", "t=2")).status_code == 400
    assert post(world, raw, secret="whsec_another").status_code == 400
    assert post(world, raw, header=header).status_code == 200


@pytest.mark.parametrize("at", [-301, 301])
def test_a_recording_is_refused(world: World, pending: WorkflowRun, at: float):
    """A signature is good for five minutes, whichever clock is wrong."""
    assert post(world, body_of(pending), at=at).status_code == 400
    assert post(world, body_of(pending), at=at - (1 if at > 0 else -1)).status_code == 200


def test_each_of_the_secrets_counts_while_one_is_rotated(world: World, pending: WorkflowRun):
    assert post(world, body_of(pending), to="/given/", secret="whsec_previous").status_code == 200
    assert post(world, body_of(pending, "evt_2"), to="/given/", secret="whsec_current").status_code == 200
    raw = body_of(pending, "evt_3")
    at = world.clock.now().timestamp()
    both = f"{StripeScheme().sign(raw, 'unknown', at)},{StripeScheme().sign(raw, SECRET, at).partition(',')[2]}"
    assert post(world, raw, header=both).status_code == 200


def test_without_a_secret_everything_is_refused_and_sent_again_later(
    world: World, pending: WorkflowRun, monkeypatch: pytest.MonkeyPatch
):
    """An empty secret must not verify what an empty secret has signed."""
    monkeypatch.setattr(webhook_urls, "SECRETS", ["", ""])
    assert post(world, body_of(pending), to="/given/", secret="").status_code == 503
    monkeypatch.setenv("TEST_WEBHOOK_SECRET", "")
    assert post(world, body_of(pending), secret="").status_code == 503
    assert not ProviderEvent.objects.exists()


@pytest.mark.parametrize(
    ("resolver", "value", "cure"),
    [("", SECRET, 'set DURABLEFLOWS["SECRETS"]'), ("durableflows.secrets.from_environment", "", "TEST_WEBHOOK_SECRET")],
)
def test_the_log_says_which_secret_is_missing_and_the_answer_does_not(
    world: World, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    resolver: str, value: str, cure: str,
):  # fmt: skip
    settings.DURABLEFLOWS = {**settings.DURABLEFLOWS, "SECRETS": resolver}
    monkeypatch.setattr(webhooks, "_known", {})
    monkeypatch.setenv("TEST_WEBHOOK_SECRET", value)

    answer = post(world, b"{}")

    assert answer.status_code == 503
    assert cure in caplog.text
    assert cure not in answer.content.decode()


def test_secrets_are_looked_up_once_a_minute(world: World, pending: WorkflowRun, monkeypatch: pytest.MonkeyPatch):
    """A flood of forged requests is no flood at the store of secrets."""
    post(world, body_of(pending))
    monkeypatch.setenv("TEST_WEBHOOK_SECRET", "whsec_next")

    assert post(world, body_of(pending)).status_code == 200
    monkeypatch.setattr(webhooks, "_known", {})
    assert post(world, body_of(pending)).status_code == 400


@pytest.mark.parametrize(
    "raw",
    [b"", b"no json", b"[]", b'"evt"', b"{}", b'{"id": 5}', b'{"id": ""}', b'{"id": "e", "type": 5}', b"\xff\xfe",
     b'{"id": "e", "x": NaN}', b'{"id": "e", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"id": "e\\u0000"}',
     b'{"id": "e", "created": 1e99, "type": []}', b'{"id": "e", "created": 999999999999999999}'],
)  # fmt: skip
def test_what_is_signed_and_is_no_event_is_refused(world: World, raw: bytes):
    assert post(world, raw).status_code == 400
    assert not ProviderEvent.objects.exists()


def test_what_is_too_large_is_refused_before_it_is_read(world: World, settings: Any):
    settings.DURABLEFLOWS = {**settings.DURABLEFLOWS, "MAX_EVENT_BYTES": 1000}
    large = b'{"id": "evt_1", "x": "' + b"x" * 1000 + b'"}'

    assert post(world, large).status_code == 413
    assert post(world, large, CONTENT_LENGTH="10").status_code == 400, "cut off: the signature is of more"
    assert not ProviderEvent.objects.exists()


@pytest.mark.parametrize("length", ["\u00b2", "9" * 5000, "-1", "many"])
def test_a_length_that_is_none_breaks_nothing(world: World, pending: WorkflowRun, length: str):
    """What comes before the proof of the signature is anybody's: it is refused or read, never an error of ours."""
    answer = post(world, body_of(pending), header="t=1,v1=00", CONTENT_LENGTH=length)

    assert answer.status_code in (400, 413)
    assert not ProviderEvent.objects.exists()


@pytest.mark.parametrize("method", ["get", "head", "put", "patch", "delete", "options"])
def test_nothing_but_post_is_taken(method: str):
    assert getattr(Client(), method)("/named/").status_code == 405


def test_what_could_not_be_stored_is_sent_again(world: World, pending: WorkflowRun, monkeypatch: pytest.MonkeyPatch):
    """503, and no word of what went wrong inside."""

    def fail(*arguments: object, **options: object) -> None:
        raise DatabaseError("password=hunter2")

    monkeypatch.setattr(api, "provider_event", fail)
    answer = post(world, body_of(pending))

    assert answer.status_code == 503
    assert b"hunter2" not in answer.content


def test_an_event_that_is_stored_and_cannot_be_judged_is_answered_with_success(world: World, pending: WorkflowRun):
    """The provider need not send it again: a sweep judges it."""

    class JudgeFails(Exception): ...

    def hook(crossed: Boundary) -> None:
        if crossed is Boundary.EVENT_JUDGED_BEFORE_COMMIT:
            raise JudgeFails

    from durableflows import boundaries

    boundaries.install(hook)
    try:
        assert post(world, body_of(pending)).status_code == 200
    finally:
        boundaries.install(None)
    assert SideEffect.objects.get(run=pending).state == EffectState.ACCEPTED
    world.run_until_idle()
    assert WorkflowRun.objects.get(pk=pending.pk).state == RunState.SUCCEEDED


def test_a_door_without_provider_or_secret_is_a_mistake_in_the_urls():
    with pytest.raises(InvalidDefinition, match="provider"):
        ProviderWebhook.as_view(secrets=("x",))
    with pytest.raises(InvalidDefinition, match="secrets"):
        ProviderWebhook.as_view(provider="test")


def test_a_scheme_of_one_s_own(world: World, pending: WorkflowRun):
    """A provider that signs otherwise, and calls its event's id otherwise."""

    class Plain(StripeScheme):
        def verify(self, headers: Any, raw: bytes, secrets: Any) -> float:
            if headers.get("X-Token") not in secrets:
                raise webhooks.BadSignature("no token")
            return world.clock.now().timestamp()

        def envelope(self, body: Any) -> webhooks.Envelope:
            return webhooks.Envelope(body["number"])

    view = ProviderWebhook.as_view(provider="test", secrets=lambda: ["open sesame"], scheme=Plain())

    def send(token: str) -> HttpResponse:
        raw = body_of(pending, number="n-1")
        request = RequestFactory().post("/", raw, content_type="application/json", headers={"X-Token": token})
        answer = view(request)
        assert isinstance(answer, HttpResponse)
        return answer

    assert (send("guessed").status_code, send("open sesame").status_code) == (400, 200)
    assert event_in(pending).event_id == "n-1"
