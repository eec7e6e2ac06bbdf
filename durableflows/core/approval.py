"""How people are asked: the facts, who may answer until when, and where each answer leads.

Owns the shapes that users write (Facts, Escalate, Fallback) and `ApprovalSpec`, which `core.declare` makes of them.
Values only; never changes after import, never asks anybody.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypeAlias

from pydantic import BaseModel

from durableflows.core import shape, until
from durableflows.core.approvers import Approvers, Band, band_of, band_words, names
from durableflows.core.money import Money
from durableflows.core.payload import JSON
from durableflows.core.until import Expires
from durableflows.errors import InvalidDefinition, InvalidState

AMOUNT, OTHER_AMOUNT = "amount", "amount that decides who is asked"


@dataclass(frozen=True, slots=True)
class Fallback:
    """When nobody has answered in time, the run goes on with this step."""

    step: str

    def __post_init__(self) -> None:
        name: object = self.step
        if not isinstance(name, str) or not name:
            raise InvalidDefinition(f"Fallback: step={name!r}, the name of a step is needed")


@dataclass(frozen=True, slots=True)
class Escalate:
    """When a request expires, ask these people; after that, `then`.

    Shapes and units   permission, groups, people: each is enough, as in `Approvers`; quorum: None for as many as the
                       request needed before; expires: time that they have, None: as long as the request before had
    """

    permission: str = ""
    then: "Expiry" = "deny"
    expires: Expires | None = None
    groups: Sequence[str] = ()
    people: Sequence[str] = ()
    quorum: int | None = None

    def __post_init__(self) -> None:
        for option in ("groups", "people"):
            object.__setattr__(self, option, names(getattr(self, option), f"Escalate: {option}"))
        if not (self.permission or self.groups or self.people):
            raise InvalidDefinition(
                "Escalate: a permission is needed, like 'app.approve_any_refund', or groups, or people"
            )
        if self.then != "deny" and not isinstance(self.then, Escalate | Fallback):
            raise InvalidDefinition(
                f"Escalate: then={self.then!r}, 'deny', another Escalate or Fallback('step') is needed"
            )
        if isinstance(self.expires, timedelta) and self.expires <= timedelta(0):
            raise InvalidDefinition("Escalate: expires must be longer than nothing")
        if self.quorum is not None and (type(self.quorum) is not int or self.quorum < 1):
            raise InvalidDefinition(f"Escalate: quorum={self.quorum!r}, at least one answer is needed")

    def by(self, quorum: int) -> Approvers:
        """Who is asked; `quorum` is what the request needed before."""
        return Approvers(self.permission, self.groups, self.people, self.quorum or quorum)


Expiry: TypeAlias = "Literal['deny'] | Escalate | Fallback"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a person is shown before deciding.

    A decision is bound to `binding`: when one of these values changes, votes are void. `context` may change freely.
    """

    binding: Mapping[str, object]
    context: Mapping[str, object] = field(default_factory=dict)

    def dump(self) -> dict[str, JSON]:
        """Write {"binding": {...}, "context": {...}} as JSON; Money, Decimal, dates and ids in their JSON forms.

        Text that PostgreSQL cannot store is marked: a name typed with NUL must not keep anybody from being asked.
        Raises InvalidState naming the fact that has none (NaN, an ORM row).
        """
        binding = shape.plain_marked(self.binding, what="binding facts")
        context = shape.plain_marked(self.context, what="context facts")
        return {"binding": binding, "context": context}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSpec:
    """How a person is asked, who may answer, and where each answer leads.

    `bands` say who by the amount; without them `permission`, `groups`, `people` and `quorum` do.
    """

    title: str
    shows: Callable[..., Facts]
    approved: str
    rejected: str
    permission: str = ""
    groups: Sequence[str] = ()
    people: Sequence[str] = ()
    quorum: int = 1
    bands: Sequence[Band] = ()
    amount: Callable[..., Money] | str | None = None
    exclude_requester: bool = True
    exclude_delegate: bool = True
    expires: Expires = timedelta(days=3)
    on_expiry: Expiry = "deny"
    remind: Sequence[timedelta] = ()
    edits: type[BaseModel] | None = None

    def ladder(self) -> tuple[Escalate, ...]:
        """List the escalations in order; after the last one the request is rejected, or goes to its fallback."""
        rungs: list[Escalate] = []
        rung: Expiry = self.on_expiry
        while isinstance(rung, Escalate):
            rungs.append(rung)
            rung = rung.then
        return tuple(rungs)

    @property
    def fallback(self) -> str:
        """The step that a request leads to which nobody has answered; '' where it is rejected."""
        last: Expiry = self.on_expiry
        while isinstance(last, Escalate):
            last = last.then
        return last.step if isinstance(last, Fallback) else ""

    @property
    def targets(self) -> tuple[str, ...]:
        """The steps that its answers lead to, once each."""
        return tuple(dict.fromkeys(name for name in (self.approved, self.rejected, self.fallback) if name))

    def asked_of(self, amount: Money | None) -> Approvers | None:
        """Who is asked about an amount; None: nobody needs to be."""
        if not self.bands:
            return Approvers(self.permission, self.groups, self.people, self.quorum)
        return None if amount is None else band_of(self.bands, amount).by

    def asked_anew_of(self, amount: Money | None) -> Approvers:
        """Who is asked when facts change while somebody is asked: a person decides then, however small it is."""
        by = self.asked_of(amount)
        return by if by is not None else next(band.by for band in self.bands if band.by is not None)

    def band_words(self, amount: Money | None) -> str:
        """Say which amounts the rule is about that was chosen; '' without bands."""
        if not self.bands or amount is None:
            return ""
        return band_words(self.bands, band_of(self.bands, amount), amount.currency)

    def everybody(self) -> tuple[Approvers, ...]:
        """All who may come to be asked, each with the most who would have to say yes."""
        first = self._asked_first()
        return (*first, *(one.by for one in self.rungs(self.most_needed)))

    @property
    def most_needed(self) -> int:
        """How many people have to say yes at first, where it is most."""
        return max(by.quorum for by in self._asked_first())

    def _asked_first(self) -> list[Approvers]:
        asked = [band.by for band in self.bands] if self.bands else [self.asked_of(None)]
        return [by for by in asked if by is not None]

    def rungs(self, quorum: int) -> tuple["Rung", ...]:
        """The ladder of a request that needs so many at first."""
        found: list[Rung] = []
        for rung in self.ladder():
            by = rung.by(found[-1].by.quorum if found else quorum)
            found.append(Rung(by, rung.expires or self.expires, tuple(self.remind)))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Rung:
    """Who is asked next, until when, and when they are reminded: as a request keeps it, whatever code comes later."""

    by: Approvers
    expires: Expires
    remind: Sequence[timedelta] = ()

    def dump(self) -> dict[str, JSON]:
        """Write it as JSON."""
        remind: list[JSON] = [span.total_seconds() for span in self.remind]
        return {**self.by.dump(), **until.dump(self.expires), "remind_seconds": remind}

    @classmethod
    def load(cls, data: Mapping[str, JSON], quorum: int) -> "Rung":
        """Read it; `quorum` is what the request needs now: rungs of older releases say none."""
        remind = [timedelta(seconds=float(str(span))) for span in _list(data, "remind_seconds")]
        groups, people = ([str(name) for name in _list(data, option)] for option in ("groups", "people"))
        given = data.get("quorum")
        needed = given if isinstance(given, int) else quorum
        by = Approvers(str(data.get("permission") or ""), groups, people, needed)
        return cls(by, until.load(data), remind)


def amount_among(
    spec: ApprovalSpec, binding: dict[str, JSON], given: Money | None
) -> tuple[Money | None, dict[str, JSON]]:
    """The amount by which the band is chosen, and the binding facts with it among them: an answer is bound to it too.

    given    what `amount` gave, where it is a function; else the amount is the fact that it names
    Raises   InvalidState when there is no such amount
    """
    if spec.amount is None:
        return None, binding
    if isinstance(spec.amount, str):
        return _fact(binding, spec.amount), binding
    if not isinstance(given, Money):
        raise InvalidState(f"amount= gave {type(given).__name__}, a Money is needed: it says who is asked")
    form: JSON = {"amount_minor": given.amount_minor, "currency": given.currency}
    if form in binding.values():
        return given, binding
    return given, {**binding, AMOUNT if AMOUNT not in binding else OTHER_AMOUNT: form}


def _list(data: Mapping[str, JSON], name: str) -> list[JSON]:
    found = data.get(name)
    return found if isinstance(found, list) else []


def _fact(binding: Mapping[str, JSON], name: str) -> Money:
    value = binding.get(name)
    if isinstance(value, dict) and set(value) == {"amount_minor", "currency"}:
        minor, currency = value["amount_minor"], value["currency"]
        if isinstance(minor, int) and isinstance(currency, str):
            return Money(minor, currency)
    raise InvalidState(f"amount={name!r}: no binding fact of this name is Money, and it says who is asked")
