"""Money as a model field: two columns, one attribute.

Owns how Money lies in a table: `amount = MoneyField()` makes the columns `amount_minor` (BIGINT) and
`amount_currency` (three letters), which migrations, constraints, filters and sums name as they are. Any model may
use it. It never converts and never rounds; a row that holds half an amount cannot be read.
"""

from typing import Any, Generic, Literal, TypeVar, cast, overload

from django.db import models

from durableflows.core.money import Money
from durableflows.errors import InvalidState

V = TypeVar("V", bound=Money | None)


# A property, because Django takes a model's properties by name in Model(...), create(...) and update_or_create(...).
class MoneyField(property, Generic[V]):
    """An amount of a model: `order.total -> Money`. Columns: `total_minor` and `total_currency`.

    With null=True both columns may be NULL, and the attribute None. Limits are Meta.constraints on the columns.
    """

    @overload
    def __init__(self: "MoneyField[Money]", verbose_name: str = "", *, null: Literal[False] = False) -> None: ...
    @overload
    def __init__(self: "MoneyField[Money | None]", verbose_name: str = "", *, null: Literal[True]) -> None: ...
    def __init__(self, verbose_name: str = "", *, null: bool = False) -> None:
        super().__init__(self._read, self._write)
        self._is_null = null
        self._name = ""
        # Made here, so that the columns stand where the attribute stands among the model's fields.
        self._minor: models.Field[Any, Any] = models.BigIntegerField(
            f"{verbose_name} in minor units" if verbose_name else None, null=null, blank=null
        )
        self._currency: models.Field[Any, Any] = models.CharField(
            f"currency of {verbose_name}" if verbose_name else None, max_length=3, null=null, blank=null
        )

    def contribute_to_class(self, cls: type[models.Model], name: str) -> None:
        """Add both columns and the attribute. Django calls it while the model class is made."""
        self._name = name
        self._minor.contribute_to_class(cls, f"{name}_minor")
        self._currency.contribute_to_class(cls, f"{name}_currency")
        setattr(cls, name, self)

    @overload
    def __get__(self, instance: None, owner: type | None = None, /) -> "MoneyField[V]": ...
    @overload
    def __get__(self, instance: models.Model, owner: type | None = None, /) -> V: ...
    def __get__(self, instance: models.Model | None, owner: type | None = None, /) -> "MoneyField[V] | V":
        return self if instance is None else cast(V, self._read(instance))

    def __set__(self, instance: models.Model, value: V, /) -> None:
        super().__set__(instance, value)

    def _read(self, instance: models.Model) -> Money | None:
        minor: int | None = getattr(instance, f"{self._name}_minor")
        currency: str | None = getattr(instance, f"{self._name}_currency")
        if minor is None and not currency:
            return None
        if minor is None or not currency:
            raise InvalidState(f"{type(instance).__name__}.{self._name} has an amount or a currency, and needs both")
        return Money(minor, currency)

    def _write(self, instance: models.Model, value: object) -> None:
        if value is None and self._is_null:
            minor, currency = None, None
        elif isinstance(value, Money):
            minor, currency = value.amount_minor, value.currency
        else:
            raise InvalidState(f"{type(instance).__name__}.{self._name} is {value!r}, and needs Money")
        setattr(instance, f"{self._name}_minor", minor)
        setattr(instance, f"{self._name}_currency", currency)
