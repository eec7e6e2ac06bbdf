"""Words for people: states, times, references, and texts of others made harmless.

Called by `explain` and by the command. Reads no rows, runs no user code, produces no markup: whoever shows a
sentence escapes it as any other text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.utils import timezone

from durableflows.core import disguise
from durableflows.core.money import Money
from durableflows.core.payload import JSON
from durableflows.core.states import WORDS
from durableflows.errors import InvalidState

Kind = Literal["done", "waiting", "problem", "certain", "unknown", "note"]
Said = tuple[str, Kind] | None
"""A sentence and its kind; None: the event is said better by another one."""

TEXT_LIMIT = 300
STATE_WORDS: Mapping[str, Mapping[str, str]] = {
    "steprun": {
        "READY": "waiting for a worker",
        "RUNNING": "under way",
        "SUCCEEDED": "done",
        "RETRY_SCHEDULED": "to be tried again",
        "WAITING_HUMAN": "waiting for a decision",
        "FAILED_PERMANENT": "failed",
        "COMPENSATING": "being undone",
        "COMPENSATED": "undone",
        "FAILED": "could not be undone",
    },
    "sideeffect": {
        "PLANNED": "not sent",
        "DISPATCHED": "sent, not answered yet",
        "ACCEPTED": "accepted, not done yet",
        "CONFIRMED": "happened",
        "REJECTED": "refused: it did not happen",
        "UNKNOWN": "unknown: it may have happened",
        "ABSENT": "did not happen",
        "UNDOING": "being undone",
        "UNDONE": "undone",
        "UNDO_FAILED": "could not be undone",
        "REVERSED": "taken back by the provider",
    },
    "approvalrequest": {
        "OPEN": "waiting",
        "EXPIRED": "expired: nobody answered in time",
        "CLOSED": "closed without a decision",
    },
}
"""Words for the states of a model's rows, where those of a run's states (`WORDS`) do not fit."""

SAFE_WORDS: Mapping[str, str] = {
    "answer": "answer the request",
    "cancel": "cancel the run: nothing more is sent, and what is under way is looked into first",
    "pause": "pause it: what is under way ends, and nothing more begins until somebody resumes it",
    "resume": "resume it: it goes on where it stands",
    "extend": "give it more time or budget: it goes on where it stood, and what happened is not done again",
    "compensate": "undo what it did, newest first; what is in doubt is looked into first",
    "redrive": "let it go on from an earlier step: what happened is not done again, unless you choose so",
    "retry": "let it go on now: what already happened is not done again",
    "resolve": "say what happened, once somebody has looked at the provider",
}
"""What each verb of `Explanation.safe` means for a person."""
ENDS, CLOSING = (".", "!", "?", "…"), "\"'”’»"
"""What ends a sentence, and what may stand behind it."""
REFERENCE_NAMES = ("id", "reference", "number", "message_id")


@dataclass(frozen=True, slots=True)
class Fact:
    """An event as words see it, with what the rows add to it."""

    kind: str
    step: str
    actor: str
    data: Mapping[str, JSON]
    now: datetime
    provider: str = ""
    comment: str = ""
    is_open: bool = False

    def text(self, name: str) -> str:
        """A fact of the event as harmless text."""
        return plain(self.data.get(name) or "")

    @property
    def who(self) -> str:
        """Who did it, as harmless text; nothing when the engine did."""
        return plain(self.actor)

    @property
    def by(self) -> str:
        """ " by anna", or nothing when the engine did it."""
        return f" by {self.who}" if self.actor else ""

    @property
    def reference(self) -> str:
        """The provider's own name for what it did, as harmless text; nothing when its receipt has none."""
        return reference_of(self.data.get("receipt"))


def plain(value: object, limit: int = TEXT_LIMIT) -> str:
    """One line of visible text: what could disguise is spelled out, the end is cut off."""
    return disguise.in_one_line(str(value), limit)


def value_words(value: object) -> str:
    """A stored value in words: money as "USD 1,600.00", lists and objects item by item, "–" for nothing."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        named = ", ".join(f"{disguise.plainly(str(name))}: {value_words(item)}" for name, item in value.items())
        amount = money_of(value)
        return amount.words if amount else named or "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(value_words, value)) or "–"
    return disguise.plainly(str(value))


def money_of(value: object) -> Money | None:
    """Read Money out of a stored value; None for anything else, also for what only looks like it."""
    if not isinstance(value, dict) or value.keys() != {"amount_minor", "currency"}:
        return None
    try:
        return Money(value["amount_minor"], value["currency"])
    except (InvalidState, TypeError):
        return None


def full_stop(text: str) -> str:
    """End a sentence: with a full stop, unless somebody's own words at its end have done so."""
    text = text.rstrip()
    return text if not text or text.rstrip(CLOSING).endswith(ENDS) else f"{text}."


def state_words(state: object, model: str = "") -> str:
    """A state in a person's words. `model`: the model's name in small letters."""
    name = str(state)
    return STATE_WORDS.get(model, {}).get(name) or WORDS.get(name) or name.replace("_", " ").lower()


def moment(at: datetime, now: datetime) -> str:
    """ "10:40" today, "Wed 2 Dec 10:40" on another day, in the current time zone."""
    local, today = timezone.localtime(at), timezone.localtime(now)
    if local.date() == today.date():
        return f"{local:%H:%M}"
    year = "" if local.year == today.year else f" {local.year}"
    return f"{local:%a} {local.day} {local:%b}{year} {local:%H:%M}"


def when(at: datetime, now: datetime) -> str:
    """ "at 10:40" or "on Wed 2 Dec 10:40"."""
    is_today = timezone.localtime(at).date() == timezone.localtime(now).date()
    return f"{'at' if is_today else 'on'} {moment(at, now)}"


def reference_of(receipt: JSON) -> str:
    """The provider's own name for what it did, if the receipt has one where they usually stand."""
    if isinstance(receipt, dict):
        for name in REFERENCE_NAMES:
            if isinstance(receipt.get(name), str | int) and receipt[name] != "":
                return plain(receipt[name], 80)
    return ""
