"""What each page needs before it reads rows: values computed once a request, a clear no where tenants are not known,
and addresses in which nothing is that no query takes.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID

from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest

from durableflows.core.keys import read_id
from durableflows.core.payload import unstorable_in
from durableflows.errors import TenantsUnknown

Value = TypeVar("Value")


def once(request: HttpRequest, name: str, compute: Callable[[], Value]) -> Value:
    """Compute a value once a request: a page asks for the same right many times."""
    kept: dict[str, Any] = request.__dict__.setdefault("_durableflows", {})
    if name not in kept:
        kept[name] = compute()
    value: Value = kept[name]
    return value


@contextmanager
def tenants_known() -> Iterator[None]:
    """Answer 403 where the project cannot say in which tenants the person acts; its log says why."""
    try:
        yield
    except TenantsUnknown as error:
        raise PermissionDenied("nobody can say in which tenants you act") from error


def sees_some(select: Callable[[Any], QuerySet[Any]], person: Any) -> bool:
    """Does the person see any such row? Nobody does whose tenants are not known."""
    try:
        return select(person).exists()
    except TenantsUnknown:
        return False


def as_id(text: str) -> UUID | None:
    """Read a search term as an id, if it is one."""
    return read_id(text.strip())


def refuse_unstorable(asked: Iterable[tuple[str, list[str]]]) -> None:
    """Answer 400 for an address with NUL in it, which PostgreSQL takes in no query.

    asked   names and values of the address, as `request.GET.lists()` gives them
    """
    if any(unstorable_in(text) for name, values in asked for text in (name, *values)):
        raise BadRequest("a filter with NUL in it finds nothing")
