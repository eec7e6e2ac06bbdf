"""R11, R13 and R15 of the field cases, over real sockets: what the answer was decides what is done next.

The effect raises whatever its client raises; nothing in it knows the engine's exceptions but `http_failure`.
"""

import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise

import httpx
import pytest
import requests
from pydantic import BaseModel

from durableflows import (
    EffectCall,
    Found,
    NotFound,
    Retry,
    Run,
    Workflow,
    WorkflowState,
    api,
    effect,
    http_failure,
    step,
)
from durableflows.core.definition import EffectDefinition
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.models import EffectSend, SideEffect, StepRun, WorkflowRun
from durableflows.testing import World
from tests.support.raw_server import RawServer, http, raw_server

pytestmark = pytest.mark.django_db(transaction=True)

JSON = {"content_type": "application/json"}
DONE = http("200 OK", '{"id": "re_1"}', **JSON)
REFUSED, NOWHERE = "http://127.0.0.1:1", "http://nowhere.invalid"
WAIT = 0.3
TLS = ssl.create_default_context()  # made once: it takes longer than all the rest


class Receipt(BaseModel):
    """What the gateway answers."""

    id: str


class Nothing(WorkflowState):
    """A run that remembers nothing."""


Post = Callable[[str, str], tuple[int, dict[str, str], object]]


def by_httpx(url: str, key: str) -> tuple[int, dict[str, str], object]:
    with httpx.Client(timeout=WAIT, trust_env=False, verify=TLS) as client:
        answer = client.post(url, headers={"Idempotency-Key": key})
    answer.raise_for_status()
    return answer.status_code, dict(answer.headers), answer.json()


def by_requests(url: str, key: str) -> tuple[int, dict[str, str], object]:
    with requests.Session() as session:
        session.trust_env = False
        answer = session.post(url, headers={"Idempotency-Key": key}, timeout=WAIT)
    answer.raise_for_status()
    return answer.status_code, dict(answer.headers), answer.json()


def by_hand(url: str, key: str) -> tuple[int, dict[str, str], object]:
    """As an adapter that reads statuses itself."""
    with httpx.Client(timeout=WAIT, trust_env=False, verify=TLS) as client:
        answer = client.post(url, headers={"Idempotency-Key": key})
    if answer.status_code != 200:
        in_use = answer.status_code == 409 and "in progress" in answer.text
        raise http_failure(answer.status_code, answer.headers, what="refund", key_in_use=in_use)
    return answer.status_code, dict(answer.headers), answer.json()


CLIENTS = pytest.mark.parametrize("post", [by_httpx, by_requests, by_hand], ids=lambda post: post.__name__)


class Gateway:
    """Where requests go; `acted` says whether the server did what it was asked, under which keys."""

    def __init__(self, server: RawServer, post: Post, *, urls: list[str] | None = None) -> None:
        self.server, self.post, self.urls = server, post, urls or []

    def send(self, key: str) -> object:
        return self.post(self.urls.pop(0) if self.urls else self.server.url, key)[2]

    @property
    def keys(self) -> list[str]:
        heads = [one.decode("latin-1") for one in self.server.received]
        return [found[1] for head in heads if (found := re.search(r"(?im)^idempotency-key: (\S+)\r$", head))]


def refund(gateway: Gateway, *, keyed: bool, lookup: bool) -> EffectDefinition[Receipt]:
    def find(call: EffectCall) -> Found[Receipt] | NotFound:
        return Found(Receipt(id="re_1")) if call.key in gateway.keys else NotFound()

    @effect(
        name="gateway.refund",
        provider="gateway",
        receipt=Receipt,
        lookup=find if lookup else None,
        key_window=timedelta(hours=24) if keyed else None,
        settle_seconds=30,
        timeout_seconds=10,
    )
    def send(call: EffectCall) -> Receipt:
        return Receipt.model_validate(gateway.send(call.key))

    return send


def play(world: World, used: EffectDefinition[Receipt]) -> WorkflowRun:
    """Start a run that asks for the effect once, and let it go on until nothing happens by itself."""

    class Once(Workflow[Nothing]):
        name, version, deadline = "once", 1, timedelta(days=14)

        @step(start=True, end=True, effects=(used,), retry=Retry(attempts=6, base_seconds=2, cap_seconds=60))
        def act(self, run: Run[Nothing]) -> None:
            run.effect(used)

    run = api.start(Once, {})
    world.run_through()
    return WorkflowRun.objects.get(pk=run.pk)


def sends(run: WorkflowRun) -> list[str]:
    rows = EffectSend.objects.filter(effect__run=run, kind="send").order_by("started_at")
    return list(rows.values_list("outcome", flat=True))


ACTED = [
    pytest.param(b"", id="a: closes without an answer"),
    pytest.param(None, id="b: lets the client time out"),
    *(pytest.param(http(f"{code} Error", "{}", **JSON), id=f"c: {code}") for code in (500, 502, 503, 504)),
    pytest.param(DONE[:-5], id="d: cut-off JSON"),
    pytest.param(http("200 OK", '{"id": "re', **JSON), id="d: half an object"),
    pytest.param(http("200 OK", "<html>Welcome</html>", content_type="text/html"), id="e: a page"),
]


@CLIENTS
@pytest.mark.parametrize("answer", ACTED)
def test_an_action_whose_answer_was_lost_is_asked_again_under_its_key(world: World, post: Post, answer: bytes | None):
    """R13 (a) to (e), at a gateway that remembers keys: one action, one key, never failed."""
    with raw_server(answer, DONE) as server:
        gateway = Gateway(server, post)
        run = play(world, refund(gateway, keyed=True, lookup=False))

        assert run.state == RunState.SUCCEEDED
        assert sends(run) == ["unknown", "receipt"]
        assert len(gateway.keys) == 2
        assert len(set(gateway.keys)) == 1


@pytest.mark.parametrize("answer", ACTED)
def test_an_action_whose_answer_was_lost_is_looked_up(world: World, answer: bytes | None):
    """R13 (a) to (e), at a gateway that knows no keys: settled by its key in our books, without another request."""
    with raw_server(answer) as server:
        gateway = Gateway(server, by_requests)
        run = play(world, refund(gateway, keyed=False, lookup=True))

        assert run.state == RunState.SUCCEEDED
        assert sends(run) == ["unknown"]
        assert len(gateway.keys) == 1


@pytest.mark.parametrize("answer", ACTED)
def test_an_action_whose_answer_was_lost_and_that_nobody_can_be_asked_about(world: World, answer: bytes | None):
    """R13 (a) to (e): a person decides, and nothing was sent twice."""
    with raw_server(answer) as server:
        gateway = Gateway(server, by_httpx)
        run = play(world, refund(gateway, keyed=False, lookup=False))

        assert run.state == RunState.NEEDS_RECONCILIATION
        assert SideEffect.objects.get(run=run).state == EffectState.UNKNOWN
        assert StepRun.objects.get(run=run).needs_person
        assert len(gateway.keys) == 1


@CLIENTS
@pytest.mark.parametrize("url", [REFUSED, NOWHERE], ids=["f: connection refused", "g: name not found"])
def test_what_never_left_is_tried_again_also_without_keys_and_lookups(world: World, post: Post, url: str):
    """R13 (f), (g)."""
    with raw_server(DONE) as server:
        gateway = Gateway(server, post, urls=[url, url])
        run = play(world, refund(gateway, keyed=False, lookup=False))

        assert run.state == RunState.SUCCEEDED
        assert sends(run) == ["not sent", "not sent", "receipt"]
        assert len(gateway.keys) == 1


@CLIENTS
def test_a_clear_refusal_is_permanent(world: World, post: Post):
    """R13 (h)."""
    with raw_server(http("400 Bad Request", '{"error": "no such charge"}', **JSON)) as server:
        gateway = Gateway(server, post)
        run = play(world, refund(gateway, keyed=True, lookup=True))

        assert run.state == RunState.FAILED
        assert sends(run) == ["rejected"]
        assert SideEffect.objects.get(run=run).state == EffectState.REJECTED


@CLIENTS
def test_too_many_requests_is_tried_again_and_not_before_the_server_s_time(world: World, post: Post):
    """R13 (i), R11."""
    with raw_server(http("429 Too Many Requests", "{}", retry_after="120", **JSON), DONE) as server:
        gateway = Gateway(server, post)
        began = world.clock.now()
        run = play(world, refund(gateway, keyed=False, lookup=False))

        assert run.state == RunState.SUCCEEDED
        assert sends(run) == ["not done", "receipt"]
        assert world.clock.now() - began >= timedelta(seconds=120)


@CLIENTS
def test_what_is_in_doubt_is_not_asked_again_before_the_server_s_time(world: World, post: Post):
    """R11, R13: a 503 may come after the act, and its Retry-After counts all the same."""
    with raw_server(http("503 Service Unavailable", "{}", retry_after="120", **JSON), DONE) as server:
        gateway = Gateway(server, post)
        run = play(world, refund(gateway, keyed=True, lookup=False))

        assert run.state == RunState.SUCCEEDED
        assert sends(run) == ["unknown", "receipt"]
        first, second = EffectSend.objects.filter(effect__run=run).order_by("number")
        assert second.started_at - first.started_at >= timedelta(seconds=120)


def test_a_key_in_use_is_waited_for(world: World):
    """R15: the client gave up, the first request is still under way, and then its result is stored."""
    in_progress = http("409 Conflict", '{"error": "a request with this key is in progress"}', **JSON)
    with raw_server(None, in_progress, in_progress, DONE) as server:
        gateway = Gateway(server, by_hand)
        run = play(world, refund(gateway, keyed=True, lookup=False))

        assert run.state == RunState.SUCCEEDED
        assert sends(run) == ["unknown", "key in use", "key in use", "receipt"]
        assert len(set(gateway.keys)) == 1
        at = EffectSend.objects.filter(effect__run=run).order_by("number").values_list("started_at", flat=True)
        assert all(later - earlier >= timedelta(seconds=1) for earlier, later in pairwise(at))
        assert SideEffect.objects.get(run=run).receipt == {"id": "re_1"}


# R11: a step without side effects


def reading(server: RawServer, *, attempts: int = 4, days: int = 14) -> type[Workflow[Nothing]]:
    """A run whose one step reads from the server, and lets the client's exception rise."""

    class Reads(Workflow[Nothing]):
        name, version, deadline = "reads", 1, timedelta(days=days)

        @step(start=True, end=True, retry=Retry(attempts=attempts))
        def read(self, run: Run[Nothing]) -> None:
            with httpx.Client(timeout=WAIT, trust_env=False, verify=TLS) as client:
                client.get(server.url).raise_for_status()

    return Reads


SERVER_NOW = datetime(2020, 2, 2, 12, 0, tzinfo=UTC)


def at(**ahead: float) -> str:
    return format_datetime(SERVER_NOW + timedelta(**ahead), usegmt=True)


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry_after": "120"}, 120, 125),
        ({"retry_after": at(minutes=10), "date": at()}, 600, 605),
        ({"retry_after": at(minutes=-10), "date": at()}, 1, 3),
        ({"retry_after": "soon"}, 1, 3),
        ({}, 1, 3),
    ],
    ids=["seconds", "a date by the server's clock", "a date in the past", "nonsense", "nothing"],
)
def test_a_step_waits_as_long_as_the_server_asks(
    world: World, status: str, headers: dict[str, str], least: float, most: float
):
    """R11: the server's clock is years off, and jitter only adds."""
    with raw_server(http(status, "{}", **headers), DONE) as server:
        run = api.start(reading(server), {})
        world.run_until_idle()
        row = StepRun.objects.get(run=run)

        assert row.state == StepState.RETRY_SCHEDULED
        assert row.wake_at is not None
        assert least <= (row.wake_at - world.clock.now()).total_seconds() <= most
        world.run_through()
        assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED


@pytest.mark.parametrize("asked", ["864000", "9" * 40])
def test_the_run_s_deadline_alone_ends_a_wait(world: World, asked: str):
    """R11: ten days, and more than there will be, of a run that has three."""
    with raw_server(http("429 Too Many Requests", "{}", retry_after=asked)) as server:
        run = api.start(reading(server, days=3), {})
        world.run_until_idle()
        world.clock.advance(days=2, hours=23)
        world.run_until_idle()
        assert StepRun.objects.get(run=run).state == StepState.RETRY_SCHEDULED

        world.clock.advance(hours=1)
        world.run_until_idle()

        assert WorkflowRun.objects.get(pk=run.pk).state == RunState.DEADLINE_EXCEEDED
        assert len(server.received) == 1


def test_two_hundred_steps_that_fail_at_once_come_back_apart(world: World):
    """R11: without the header; with the default settings, in one second of the clock."""

    class Fails(Workflow[Nothing]):
        name, version, deadline = "fails", 1, timedelta(days=14)

        @step(start=True, end=True)
        def read(self, run: Run[Nothing]) -> None:
            raise http_failure(503, {}, what="reading", not_done=(503,))

    for _ in range(200):
        api.start(Fails, {})
    world.run_until_idle(limit=1000)

    wakes = sorted(filter(None, StepRun.objects.values_list("wake_at", flat=True)))
    assert len(wakes) == 200
    assert (wakes[-1] - wakes[0]).total_seconds() > 1.5
    assert max(sum(one <= other < one + timedelta(seconds=0.5) for other in wakes) for one in wakes) < 100
