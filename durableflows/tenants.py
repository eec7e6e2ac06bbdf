"""In which tenants a person acts: the project says so by DURABLEFLOWS["TENANTS_OF"]. Asked anew at each door.

Runs the project's code, so it is never called under a lock or inside a transaction of the engine (P11). What is no
answer shuts the door: nobody is let in by a mistake.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.utils.module_loading import import_string

from durableflows.conf import settings
from durableflows.core import log_lines
from durableflows.errors import TenantsUnknown

logger = log_lines.logger("durableflows.tenants")


def tenants_of(person: Any) -> frozenset[str] | None:
    """Name the tenants a person acts in; None: all. Raises TenantsUnknown when the project gives no clear answer.

    Without the setting: '' alone, and all for superusers. Who is not logged in, or not active, acts nowhere.
    """
    if getattr(person, "pk", None) is None or not getattr(person, "is_active", False):
        return frozenset()
    path = settings().TENANTS_OF
    if not path:
        return None if getattr(person, "is_superuser", False) else frozenset({""})
    try:
        return _names(load(path)(person))
    except Exception as error:
        logger.exception("%s did not say in which tenants %s acts", path, person)
        raise TenantsUnknown(
            f"TENANTS_OF, {path}, did not say in which tenants {person} acts ({type(error).__name__}: {error}): "
            "nothing is shown or done"
        ) from error


def acts_in(person: Any, tenant: str) -> bool:
    """Does the person act in this tenant? Raises TenantsUnknown."""
    tenants = tenants_of(person)
    return tenants is None or tenant in tenants


def load(path: str) -> Callable[[Any], object]:
    """Import the callable that the setting names. Raises ImportError, or TypeError when it is not one."""
    found = import_string(path)
    if not callable(found):
        raise TypeError(f"it is {type(found).__name__}, not a callable")
    function: Callable[[Any], object] = found
    return function


def _names(answer: object) -> frozenset[str] | None:
    if answer is None:
        return None
    # A text is a collection of letters, and a mapping one of its keys: both are mistakes.
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        raise TypeError(f"it returned {type(answer).__name__}, not None or a collection of tenant names")
    names = frozenset(answer)
    if not all(isinstance(name, str) for name in names):
        raise TypeError("it returned a collection in which not each item is a text")
    return names
