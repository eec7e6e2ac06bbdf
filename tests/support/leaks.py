"""A gateway whose errors quote everything that they should not, a workflow that meets them, and a search everywhere."""

import io
import json
import logging
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import resolve
from pydantic import BaseModel

from durableflows import (
    CannotTell,
    EffectCall,
    Facts,
    Found,
    NeedsHuman,
    NotFound,
    Permanent,
    Retry,
    Run,
    SecretRef,
    StepReturn,
    Transient,
    UnknownOutcome,
    Workflow,
    WorkflowState,
    approval,
    effect,
    fail,
    step,
)
from durableflows.logs import JsonFormatter, RunFilter

SECRETS = {
    "address": "SECRET1-of-the-address",
    "header": "SECRET2-of-the-header",
    "password": "SECRET3-of-the-input",
    "local": "SECRET4-of-a-local",
    "card": "4242 4242 4242 4242",
    "number": "5555555555554444",
}
HOST, PATH, STATUS = "pay.example", "/v1/refunds", "402"
VAULT = {"payments/password": SECRETS["password"]}


class GatewayError(Exception):
    """As a careless client raises it."""


class Receipt(BaseModel, frozen=True):
    """What the gateway answers."""

    id: str


def call_gateway() -> None:
    """Fail, quoting address, headers, body and a local variable, in the forms in which libraries print them."""
    token = SECRETS["local"]
    headers = {"Authorization": f"Bearer {SECRETS['header']}"}
    body = {"card": SECRETS["card"], "note": f"card {SECRETS['number']}"}
    with httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(int(STATUS)))) as client:
        answer = client.post(f"https://{HOST}{PATH}?api_key={SECRETS['address']}", headers=headers, json=body)
    try:
        answer.raise_for_status()
    except httpx.HTTPStatusError as error:
        sent = f"{headers} {list(headers.items())} {answer.request.headers.raw!r} {json.dumps(body)}"
        raise GatewayError(f"{error}; sent {sent} with {token=}") from error


def quoting(kind: Callable[[str], Exception]) -> Exception:
    """One of our errors, with the text of the gateway's."""
    try:
        call_gateway()
    except GatewayError as error:
        return kind(str(error))
    raise AssertionError("the gateway answered")


KINDS: Mapping[str, Callable[[str], Exception]] = {
    "permanent": Permanent,
    "transient": Transient,
    "unknown": UnknownOutcome,
    "person": NeedsHuman,
    "unclassified": GatewayError,
}


class Leaky(WorkflowState):
    """Where it fails; its secret is a reference."""

    place: str
    password: SecretRef = SecretRef(name="payments/password")


def find(call: EffectCall, *, place: str) -> Found[Receipt] | NotFound | CannotTell:
    """A lookup that fails, or says why it cannot tell."""
    if place == "lookup":
        call_gateway()
    return CannotTell(str(quoting(GatewayError)))


def show(run: Run[Leaky]) -> Facts:
    """Facts that fail, or quote."""
    if run.state.place == "facts":
        call_gateway()
    return Facts(binding={"place": run.state.place}, context={"why": str(quoting(GatewayError))})


def still_wanted(run: Run[Leaky]) -> str | None:
    """A recheck that fails, or says why not."""
    if run.state.place == "recheck raises":
        call_gateway()
    return str(quoting(GatewayError)) if run.state.place == "recheck" else None


def look_around(run: Run[Leaky]) -> None:
    """A body that has a secret at hand, notes and logs what it should not, and may fail."""
    token = run.secret(run.state.password)
    assert token
    run.note(str(quoting(GatewayError)))
    logging.getLogger("shop").error("the body says: %s", quoting(GatewayError))
    if run.state.place == "body":
        call_gateway()


def leaky_workflow() -> type[Workflow[Leaky]]:
    """begin -> (ask ->) act. Fails at the place that its state names."""

    @effect(name="gate.pay", provider="gate", receipt=Receipt, lookup=find, key_window=None, settle_seconds=30)
    def pay(call: EffectCall, *, place: str) -> Receipt:
        raise quoting(KINDS.get(place, UnknownOutcome))

    class Leak(Workflow[Leaky]):
        """Fail somewhere."""

        name, version, deadline = "leak", 1, timedelta(days=900)

        @step(start=True, to=("ask", "act"))
        def begin(self, run: Run[Leaky]) -> StepReturn:
            look_around(run)
            if run.state.place == "fails":
                return fail(str(quoting(GatewayError)))
            return self.ask if run.state.place in ("facts", "asked") else self.act

        ask = approval(
            title="Pay {place}",
            shows=show,
            permission="durableflows.answer_approval",
            approved="act",
            rejected="act",
            expires=timedelta(days=400),
        )

        @step(
            end=True,
            effects=(pay,),
            retry=Retry(attempts=2, base_seconds=1),
            recheck=still_wanted,
            on_refused="refused",
        )
        def act(self, run: Run[Leaky]) -> None:
            run.effect(pay, place=run.state.place)

        @step(end=True)
        def refused(self, run: Run[Leaky]) -> None: ...

    return Leak


PLACES = (*KINDS, "lookup", "facts", "recheck raises", "recheck", "body", "fails", "asked")


def found_in(text: str) -> list[str]:
    """Which secrets a text has: as they are, and cards without their spaces."""
    flat = re.sub(r"[ -]", "", text)
    return [name for name, value in SECRETS.items() if value in text or value.replace(" ", "").replace("-", "") in flat]


@dataclass
class Everywhere:
    """Texts by where they were found."""

    texts: dict[str, str] = field(default_factory=dict)
    logs: Mapping[str, io.StringIO] = field(default_factory=dict)

    def add(self, where: str, text: str) -> None:
        """Look there too."""
        self.texts[where] = self.texts.get(where, "") + text

    def leaks(self) -> dict[str, tuple[list[str], str]]:
        """Where a secret is, which ones, and the words around the first of them. The logs are looked at, too."""
        for where, page in self.logs.items():
            self.texts[where] = page.getvalue()
        found = {where: found_in(text) for where, text in self.texts.items()}
        return {
            where: (names, _around(self.texts[where], SECRETS[names[0]])) for where, names in found.items() if names
        }


def _around(text: str, secret: str) -> str:
    place = text.find(secret)
    return text[max(0, place - 200) : place + 60]


def tables() -> Iterator[tuple[str, str]]:
    """Every table of the database, as text."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        for (name,) in cursor.fetchall():
            cursor.execute(f"SELECT coalesce(string_agg(t::text, chr(10)), '') FROM \"{name}\" t")
            yield f"table {name}", cursor.fetchone()[0]


@contextmanager
def logged() -> Iterator[Mapping[str, io.StringIO]]:
    """What anybody logs, by the handlers that the how-to shows; what the engine logs, by one that changes nothing."""
    pages = {"log as JSON": io.StringIO(), "log as text": io.StringIO(), "log of the engine": io.StringIO()}
    lines, text, own = (logging.StreamHandler(page) for page in pages.values())
    lines.setFormatter(JsonFormatter())
    text.addFilter(RunFilter())
    for handler in (text, own):
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    root, engine = logging.getLogger(), logging.getLogger("durableflows")
    before = root.level
    root.handlers[:0] = [lines, text]  # before pytest's own: a filter masks the line for whoever comes after it
    engine.addHandler(own)
    root.setLevel(logging.INFO)
    yield pages
    root.setLevel(before)
    engine.removeHandler(own)
    for handler in (lines, text):
        root.removeHandler(handler)


PAGES_A_VIEW = 2
LINK = re.compile(r"href=\"(/[^\"#]*)")


def crawled(client: Client, *begin: str) -> Iterator[tuple[str, str]]:
    """Each page that can be reached, a few of each kind."""
    waiting, seen, count = list(begin), set[str](), dict[str, int]()
    while waiting:
        address = waiting.pop(0).replace("&amp;", "&")
        kind = resolve(address.partition("?")[0]).view_name
        if address in seen or "logout" in address or count.get(kind, 0) >= PAGES_A_VIEW:
            continue
        seen.add(address)
        count[kind] = count.get(kind, 0) + 1
        answer = client.get(address, follow=True)
        text = answer.text if hasattr(answer, "text") and not answer.streaming else b"".join(answer).decode()
        yield f"page {kind}", text
        waiting += [link for link in LINK.findall(text) if is_ours(link)]


def is_ours(address: str) -> bool:
    """A page of the engine, or an admin page of its rows."""
    return address.startswith(("/durableflows/", "/admin/durableflows/"))


def said(*words: str) -> str:
    """What a command prints, however it ends."""
    out = io.StringIO()
    try:
        call_command("durableflows", *words, stdout=out)
    except (CommandError, SystemExit) as error:
        out.write(str(error))
    return out.getvalue()


def refused_with(error: Any) -> str:
    """All that an error shows of itself, its problems and causes too."""
    return f"{error!r} {getattr(error, 'problems', '')} {''.join(traceback.format_exception(error))}"
