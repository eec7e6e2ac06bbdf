"""Who may answer an approval: by a right, a group or their name, how many of them, and for which amounts.

Owns the choice of a band by an amount, and the words for both. Values only: whether a person has a right or is in a
group is asked elsewhere. Never rounds, never compares two currencies.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from durableflows.core.money import Money
from durableflows.core.payload import JSON
from durableflows.errors import InvalidDefinition, InvalidState

PERMISSION, GROUP, PERSON = "permission", "group", "person"


@dataclass(frozen=True, slots=True)
class Approvers:
    """Whoever has the permission, is in one of the groups, or is one of the people: each of these is enough.

    Shapes and units   permission: "app_label.codename"; groups: names of groups; people: user names; quorum: how many
                       different people must say yes
    """

    permission: str = ""
    groups: Sequence[str] = ()
    people: Sequence[str] = ()
    quorum: int = 1

    def __post_init__(self) -> None:
        for option in ("groups", "people"):
            object.__setattr__(self, option, names(getattr(self, option), f"Approvers: {option}"))
        if not (self.permission or self.groups or self.people):
            raise InvalidDefinition("Approvers: nobody is named, give a permission, groups or people")
        if type(self.quorum) is not int or self.quorum < 1:
            raise InvalidDefinition(f"Approvers: quorum={self.quorum!r}, at least one answer is needed")

    @property
    def can_be_enough(self) -> bool:
        """Can there be as many people as must say yes? Only a list of names says how many there are at most."""
        return bool(self.permission or self.groups) or len(self.people) >= self.quorum

    def right_of(self, *, has: Callable[[str], bool], groups: Collection[str], username: str) -> str:
        """Say by which right somebody may answer, the most personal one first; '' for none.

        has   asks for a permission; groups, username: what the person is in and is called
        """
        if username and username in self.people:
            return f"{PERSON}:{username}"
        for name in self.groups:
            if name in groups:
                return f"{GROUP}:{name}"
        return f"{PERMISSION}:{self.permission}" if self.permission and has(self.permission) else ""

    def words(self, known: Mapping[str, str] | None = None) -> str:
        """Say who it is, for people; `known` gives permissions the names that people know them by."""
        shown = (known or {}).get(self.permission, self.permission)
        parts = [f"people with the permission {shown}"] if self.permission else []
        parts += [f"members of {_either(self.groups)}"] if self.groups else []
        parts += [_either(self.people)] if self.people else []
        return " or ".join(parts)

    def dump(self) -> dict[str, JSON]:
        """Write it as JSON."""
        return {
            "permission": self.permission,
            "groups": [*self.groups],
            "people": [*self.people],
            "quorum": self.quorum,
        }


@dataclass(frozen=True, slots=True)
class Band:
    """Who is asked about amounts up to a limit, the limit included. `up_to=None`: about all that are higher.

    `by=None`: nobody needs to be asked. Limits of several currencies may stand in one list: only those of the amount's
    own currency count.
    """

    up_to: Money | None
    by: Approvers | None

    def __post_init__(self) -> None:
        limit: object = self.up_to
        if limit is not None and not (isinstance(limit, Money) and limit.is_positive):
            raise InvalidDefinition(f"Band: up_to={limit!r}, a Money of more than nothing or None is needed")
        by: object = self.by
        if by is not None and not isinstance(by, Approvers):
            raise InvalidDefinition(f"Band: by={by!r}, Approvers(...) or None is needed")


def band_of(bands: Sequence[Band], amount: Money) -> Band:
    """Choose the band of an amount: the lowest limit in its currency that it does not pass, else the last band.

    Raises InvalidState for an amount of less than nothing: no rule says who answers for it
    """
    if amount.amount_minor < 0:
        raise InvalidState(f"{amount} is less than nothing: no band says who answers for it")
    limits = [band for band in bands if band.up_to is not None and band.up_to.currency == amount.currency]
    fitting = [band for band in limits if band.up_to is not None and amount <= band.up_to]
    return fitting[0] if fitting else bands[-1]


def band_words(bands: Sequence[Band], band: Band, currency: str) -> str:
    """Say which amounts a band is about: "up to USD 500.00", "above USD 5,000.00".

    currency   of the amount; '' for any
    """
    if band.up_to is not None:
        return f"up to {band.up_to.words}"
    limits = [one.up_to for one in bands if one.up_to is not None]
    own = [limit for limit in limits if not currency or limit.currency == currency]
    return f"above {own[-1].words}" if own else f"any amount in {currency}"


def band_problems(bands: Sequence[Band]) -> list[str]:
    """Say what is wrong with a list of bands, and the cure."""
    given: Sequence[object] = bands
    strangers = [band for band in given if not isinstance(band, Band)]
    if strangers:
        return [f"bands: {strangers[0]!r} is no band, write Band(up_to=Money(50_000, 'USD'), by=Approvers(...))"]
    if not bands:
        return []
    found = []
    if bands[-1].up_to is not None:
        found.append(f"bands end at {bands[-1].up_to}: the last one needs up_to=None, it is asked about all else")
    if any(band.up_to is None for band in bands[:-1]):
        found.append("bands: up_to=None stands before another band, which no amount would reach: put it last")
    return found + _unordered(bands)


def _unordered(bands: Sequence[Band]) -> list[str]:
    highest: dict[str, Money] = {}
    found = []
    for limit in (band.up_to for band in bands if band.up_to is not None):
        before = highest.get(limit.currency)
        if before is not None and limit <= before:
            found.append(f"bands: {limit} comes after {before}: put lower limits first, each once")
        highest[limit.currency] = limit
    return found


def names(given: object, what: str) -> tuple[str, ...]:
    """Take a list of names, each once. Raises InvalidDefinition for a bare text, which is a list of letters."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidDefinition(f"{what}={given!r}, a list of names is needed, like ('finance',)")
    if not all(isinstance(name, str) and name.strip() for name in given):
        raise InvalidDefinition(f"{what}={given!r}, each must be a name")
    return tuple(dict.fromkeys(given))


def _either(several: Sequence[str]) -> str:
    *first, last = several
    return f"{', '.join(first)} or {last}" if first else last
