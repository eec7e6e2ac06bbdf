"""The state column and the base of every row that the engine changes.

Owned by `models`; the engine writes through `EngineRow.store`, nobody else writes these rows.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, models
from django.db.models import Q
from django_fsm import FSMField, transition

from durableflows.core.keys import new_id
from durableflows.core.states import ApprovalState, EffectState, RunState, StepState
from durableflows.errors import ConcurrentChange
from durableflows.models.compiled import update

AnyState = RunState | StepState | EffectState | ApprovalState
Table = Mapping[str, tuple[frozenset[Any], Any]]
Method = TypeVar("Method", bound=Callable[..., None])


class StateField(FSMField):
    """An fsm state that looks like a plain CharField in migrations, so that no fsm package is named there.

    django-fsm and django-fsm-2 install the same module; a host may have either.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", 24)
        kwargs["protected"] = True
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        kwargs.pop("protected", None)
        return name, "django.db.models.CharField", args, kwargs


def moves(table: Table) -> Callable[[Method], Method]:
    """Make a method the fsm transition of its own name in `table`."""

    def decorate(method: Method) -> Method:
        sources, target = table[method.__name__]
        decorator = transition(field="state", source=sorted(sources), target=target)
        return cast(Method, decorator(method))

    return decorate


def states_constraint(states: type[AnyState], name: str) -> models.CheckConstraint:
    """Let the database refuse a state that the code does not know."""
    return models.CheckConstraint(condition=Q(state__in=[str(state) for state in states]), name=name)


class EngineRow(models.Model):
    """A row with a version: each write names the version it was read at, and loses if somebody else wrote."""

    MOVES: ClassVar[Table] = {}

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    row_version = models.PositiveBigIntegerField(default=0, editable=False)

    class Meta:
        abstract = True

    def refresh_from_db(self, using: str | None = None, fields: Any = None, from_queryset: Any = None) -> None:
        """Read the row again. A protected state may not be assigned to while it is there, so it is taken out first."""
        if fields is None:  # named, since Django would take a state that is not there for a deferred field
            deferred = self.get_deferred_fields()
            fields = [field.attname for field in self._meta.concrete_fields if field.attname not in deferred]
        kept = self.__dict__.pop("state", None) if "state" in fields else None
        try:
            super().refresh_from_db(using=using, fields=fields, from_queryset=from_queryset)
        finally:
            if kept is not None:
                self.__dict__.setdefault("state", kept)

    def move(self, verb: str) -> None:
        """Make the legal move `verb` in memory; `store` writes it. Raises TransitionNotAllowed when illegal."""
        if verb not in self.MOVES:
            raise KeyError(f"{type(self).__name__} has no move {verb!r}")
        getattr(self, verb)()

    def store(self, *names: str) -> Self:
        """Write the named fields if the row is still at the version it was read at.

        Raises ConcurrentChange otherwise: the row lock makes that rare, this makes it harmless (P2, P12).
        """
        values = {name: getattr(self, name) for name in names}
        values["row_version"] = self.row_version + 1
        mine = {"id": self.pk, "row_version": self.row_version}
        if not update(self, self._state.db or DEFAULT_DB_ALIAS, values, mine):
            raise ConcurrentChange(f"{type(self).__name__} {self.pk} was changed by somebody else; read it again")
        self.row_version += 1
        return self
