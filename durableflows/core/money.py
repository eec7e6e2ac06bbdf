"""Money: whole minor units and a currency, exact everywhere.

Owns the arithmetic, the reading of text and the forms in which money is stored and shown. Anybody may use it.
Never uses a binary float, never rounds, never compares or adds two currencies.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from durableflows.core.currencies import EXPONENTS, SYMBOLS
from durableflows.core.wording import did_you_mean
from durableflows.errors import InvalidState

LARGEST_MINOR = 2**63 - 1  # what a BIGINT column holds, in either direction

_NUMBER = re.compile(r"(?P<sign>[+-]?)(?P<whole>[0-9]{1,19})(?:\.(?P<decimals>[0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in minor units of one ISO 4217 currency: Money(1000, "USD") is ten dollars.

    Raises InvalidState for an amount that is not an int, does not fit 64 bits, or an unknown currency;
    also when two currencies meet in + - < <= > >= (they are never equal, and never comparable).
    """

    amount_minor: int
    currency: str

    def __post_init__(self) -> None:
        if type(self.amount_minor) is not int:
            kind = type(self.amount_minor).__name__
            raise InvalidState(f"amount_minor is {kind}, not int: give minor units, or read text by Money.parse")
        exponent(self.currency)
        if abs(self.amount_minor) > LARGEST_MINOR:
            raise InvalidState(f"{self.currency} amount of more than {LARGEST_MINOR} minor units")

    @classmethod
    def zero(cls, currency: str) -> Self:
        """Make nothing, of a currency: the start value for sum()."""
        return cls(0, currency)

    @classmethod
    def parse(cls, text: str, currency: str, *, allow_negative: bool = False) -> Self:
        """Read an amount in major units as people type it: "10", "10.00"; never rounds.

        Raises InvalidState for more decimals than the currency has, thousands separators, exponents, NaN, spaces,
        digits that are not 0-9, and any sign unless `allow_negative`.
        """
        decimals = exponent(currency)
        match = _match(text)
        if match is None:
            raise InvalidState(
                f"{text!r} is not an amount: write digits and at most one point, like {_sample(decimals)}"
            )
        if match["sign"] and not allow_negative:
            raise InvalidState(f"{text!r}: an amount without a sign is wanted here")
        fraction = match["decimals"] or ""
        if len(fraction) > decimals:
            raise InvalidState(
                f"{text!r} has {len(fraction)} decimals, {currency} has {decimals}: nothing is rounded here"
            )
        minor = int(match["whole"] + fraction.ljust(decimals, "0"))
        return cls(-minor if match["sign"] == "-" else minor, currency)

    @property
    def amount(self) -> Decimal:
        """The amount in major units, with the currency's own number of decimals."""
        # Made from text: arithmetic would round to the precision of the caller's decimal context.
        return Decimal(f"{self.amount_minor}E-{exponent(self.currency)}")

    @property
    def display(self) -> str:
        """Plain text for people: "$1,234.50", "-€3.00", "KWD 1.234"."""
        symbol = SYMBOLS.get(self.currency, f"{self.currency} ")
        return f"{'-' if self.amount_minor < 0 else ''}{symbol}{abs(self).amount:,f}"

    @property
    def words(self) -> str:
        """Plain text for people that names the currency, whatever its sign: "USD 1,234.50", "JPY 5,800"."""
        return f"{self.currency} {self.amount:,f}"

    @property
    def is_zero(self) -> bool:
        """Whether it is nothing at all."""
        return self.amount_minor == 0

    @property
    def is_positive(self) -> bool:
        """Whether it is more than nothing."""
        return self.amount_minor > 0

    def __str__(self) -> str:
        return f"{self.currency} {self.amount:f}"

    def __add__(self, other: "Money") -> "Money":
        return (
            Money(self.amount_minor + self._same(other, "add"), self.currency) if _is_money(other) else NotImplemented
        )

    def __sub__(self, other: "Money") -> "Money":
        return (
            Money(self.amount_minor - self._same(other, "subtract"), self.currency)
            if _is_money(other)
            else NotImplemented
        )

    def __mul__(self, count: int) -> "Money":
        # bool and float are refused: True * 5 is a mistake, 0.1 * 3 would round.
        return Money(self.amount_minor * count, self.currency) if type(count) is int else NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> "Money":
        return Money(-self.amount_minor, self.currency)

    def __abs__(self) -> "Money":
        return Money(abs(self.amount_minor), self.currency)

    def __lt__(self, other: "Money") -> bool:
        return self.amount_minor < self._same(other, "compare") if _is_money(other) else NotImplemented

    def __le__(self, other: "Money") -> bool:
        return self.amount_minor <= self._same(other, "compare") if _is_money(other) else NotImplemented

    def __gt__(self, other: "Money") -> bool:
        return self.amount_minor > self._same(other, "compare") if _is_money(other) else NotImplemented

    def __ge__(self, other: "Money") -> bool:
        return self.amount_minor >= self._same(other, "compare") if _is_money(other) else NotImplemented

    def _same(self, other: "Money", verb: str) -> int:
        if other.currency != self.currency:
            raise InvalidState(f"cannot {verb} {self} and {other}: two currencies")
        return other.amount_minor

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read {"amount_minor": 1000, "currency": "USD"} strictly, in JSON and from a mapping; write the same."""
        form = core_schema.typed_dict_schema(
            {
                "amount_minor": core_schema.typed_dict_field(core_schema.int_schema(strict=True)),
                "currency": core_schema.typed_dict_field(core_schema.str_schema(strict=True)),
            },
            extra_behavior="forbid",
            total=True,
        )
        from_form = core_schema.no_info_after_validator_function(_from_form, form)
        return core_schema.json_or_python_schema(
            json_schema=from_form,
            python_schema=core_schema.union_schema(
                [core_schema.is_instance_schema(cls), from_form],
                mode="left_to_right",
                custom_error_type="money",
                custom_error_message="Input should be Money, or an object with amount_minor and currency",
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(
                _to_form, return_schema=form, when_used="json"
            ),
        )


def exponent(currency: str) -> int:
    """Say how many decimals a currency has.

    Raises InvalidState for a code that ISO 4217 does not list (also "usd": codes are upper case).
    """
    decimals = EXPONENTS.get(currency)
    if decimals is None:
        near = did_you_mean(str(currency).upper(), EXPONENTS)
        raise InvalidState(f"{currency!r} is not an ISO 4217 currency code{near}")
    return decimals


def _match(text: object) -> re.Match[str] | None:
    return _NUMBER.fullmatch(text) if isinstance(text, str) else None


def _is_money(value: object) -> bool:
    return isinstance(value, Money)


def _sample(decimals: int) -> str:
    return f"10.{'0' * decimals}" if decimals else "10"


def _from_form(form: dict[str, int | str]) -> Money:
    try:
        return Money(**form)  # type: ignore[arg-type]  # the schema above has checked both fields
    except InvalidState as error:
        raise PydanticCustomError("money", "{problem}", {"problem": str(error)}) from None


def _to_form(money: Money) -> dict[str, int | str]:
    return {"amount_minor": money.amount_minor, "currency": money.currency}
