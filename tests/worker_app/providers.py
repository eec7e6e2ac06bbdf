"""Three kinds of providers, with books that no kill can spoil and faults that a seed decides.

`stamps` honours keys and cannot be asked; `parcels` knows no keys and can be asked; `cards` honours keys, can be asked,
and often loses its answer or says "pending". A fault depends on the operation and on which of its requests it is, so
the same seed plays the same faults, whichever process sends.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from durableflows import (
    CannotTell,
    EffectCall,
    Found,
    NeverSent,
    NotFound,
    Permanent,
    Transient,
    UnknownOutcome,
    effect,
)
from tests.support.books import Books

TIMEOUT_SECONDS = 2.0
SETTLE_SECONDS = 8.0
REFUSED = "refused"
"""An operation whose reference (run, number, what) ends so is refused for good, each time."""


class Slip(BaseModel, frozen=True):
    """A receipt."""

    id: str
    status: str = "done"


# What a request may meet, out of a hundred; the rest are answered. Before: nothing is done; after: it is done first.
FEW: Mapping[str, float] = {
    "unreachable before": 3,
    "busy before": 3,
    "error before": 3,
    "stops before": 0.7,
    "dies before": 0.5,
    "lost after": 4,
    "bug after": 1,
    "hangs after": 0.5,
    "stops after": 0.7,
    "dies after": 0.7,
}
MANY: Mapping[str, float] = {**FEW, "lost after": 20, "pending after": 5}
# Outcomes that say of their own request that nothing was done.
NEGATIVE = frozenset({"unreachable", "busy", "late", REFUSED})


def folder() -> Path:
    """Where the books are."""
    return Path(os.environ["TEST_STORM_FOLDER"])


def is_calm() -> bool:
    """The test ends all faults by a file."""
    return (folder() / "calm").exists()


def _fault(provider: str, reference: str, nth: int, odds: Mapping[str, float]) -> str:
    if is_calm():
        return ""
    rng = random.Random(f"{os.environ['TEST_STORM_SEED']}|{provider}|{reference.partition('.')[2]}|{nth}")
    names = list(odds)
    return rng.choices([*names, ""], [*odds.values(), max(0.0, 100 - sum(odds.values()))])[0]


def _serve(
    provider: str, call: EffectCall, reference: str, odds: Mapping[str, float], act: Callable[[Books], str]
) -> Slip:
    """One request at a provider: it arrives, something may go wrong, it is done, something may go wrong."""
    books = Books(folder(), provider)
    books.write(reference, "sent", call.key)
    nth = sum(line.what == "sent" for line in books.lines(reference))
    fault = _fault(provider, reference, nth, odds)
    time.sleep(0.003)  # the wire
    if reference.endswith(f".{REFUSED}"):
        _tell(books, reference, REFUSED, call.key, Permanent("there is no such address"))
    _before(books, reference, call, fault)
    slip = Slip(id=act(books), status="pending" if fault == "pending after" else "done")
    _after(books, reference, call, fault)
    books.write(reference, "answered", call.key)
    return slip


def _before(books: Books, reference: str, call: EffectCall, fault: str) -> None:
    _misbehave(fault, "before")
    if fault == "unreachable before":
        _tell(books, reference, "unreachable", call.key, NeverSent("connection refused"))
    if fault == "busy before":
        _tell(books, reference, "busy", call.key, Transient("429, not processed", retry_after_seconds=0.5))
    if fault == "error before":
        _tell(books, reference, "error", call.key, UnknownOutcome("502"))
    try:
        call.check()  # the last thing before the bytes leave
    except NeverSent as error:
        _tell(books, reference, "late", call.key, error)


def _after(books: Books, reference: str, call: EffectCall, fault: str) -> None:
    _misbehave(fault, "after")
    if fault == "lost after":
        _tell(books, reference, "lost", call.key, UnknownOutcome("the answer was lost"))
    if fault == "bug after":
        _tell(books, reference, "bug", call.key, RuntimeError("the client library has a bug"))
    if fault == "hangs after":
        time.sleep(3 * TIMEOUT_SECONDS)


def _misbehave(fault: str, when: str) -> None:
    if fault == f"dies {when}":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == f"stops {when}":
        os.kill(os.getpid(), signal.SIGSTOP)  # the test lets it go on


def _tell(books: Books, reference: str, what: str, key: str, error: Exception) -> None:
    books.write(reference, what, key)
    raise error


def _look(provider: str, call: EffectCall, reference: str) -> Found[Slip] | NotFound | CannotTell:
    books = Books(folder(), provider)
    books.write(reference, "asked", call.key)
    done = [name for name in books.acts(reference) if name.startswith(call.key)]
    if not is_calm() and random.SystemRandom().random() < 0.1:
        return CannotTell("the search index is behind")
    if len(done) > 1:
        return CannotTell(f"done {len(done)} times")
    return Found(Slip(id=done[0][-16:] if "~" in done[0] else done[0][:16])) if done else NotFound()


def find_parcel(call: EffectCall, *, reference: str) -> Found[Slip] | NotFound | CannotTell:
    """Was it sent?"""
    return _look("parcels", call, reference)


def find_charge(call: EffectCall, *, reference: str) -> Found[Slip] | NotFound | CannotTell:
    """Was it charged?"""
    return _look("cards", call, reference)


@effect(
    name="stamps.buy",
    provider="stamps",
    receipt=Slip,
    key_window=timedelta(hours=24),
    settle_seconds=SETTLE_SECONDS,
    timeout_seconds=TIMEOUT_SECONDS,
)
def buy_stamp(call: EffectCall, *, reference: str) -> Slip:
    """Keys, no lookup: a lost answer is asked for again under the same key."""
    return _serve("stamps", call, reference, FEW, lambda books: books.act_once(reference, call.key))


@effect(
    name="parcels.send",
    provider="parcels",
    receipt=Slip,
    lookup=find_parcel,
    resend_when_absent=True,
    settle_seconds=SETTLE_SECONDS,
    timeout_seconds=TIMEOUT_SECONDS,
)
def send_parcel(call: EffectCall, *, reference: str) -> Slip:
    """No keys: while it is in doubt it is not sent again."""
    return _serve("parcels", call, reference, FEW, lambda books: books.act(reference, call.key))


@effect(
    name="cards.charge",
    provider="cards",
    receipt=Slip,
    lookup=find_charge,
    key_window=timedelta(hours=24),
    settle_seconds=SETTLE_SECONDS,
    timeout_seconds=TIMEOUT_SECONDS,
    accepted=lambda slip: slip.status == "pending",
    accepted_within=timedelta(hours=1),
)
def charge_card(call: EffectCall, *, reference: str) -> Slip:
    """Keys and a lookup, and answers that are often lost."""
    return _serve("cards", call, reference, MANY, lambda books: books.act_once(reference, call.key))
