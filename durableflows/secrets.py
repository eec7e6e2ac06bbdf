"""Secrets by name: looked up in the step that needs them, by a callable of the project. Never stored, never logged.

`DURABLEFLOWS["SECRETS"] = "shop.vault.read"`: callable(name) -> str. `durableflows.secrets.from_environment` reads the
environment variable of the name. Source: P14; S2.22.
"""

import os
from collections.abc import Callable
from typing import cast

from django.utils.module_loading import import_string

from durableflows.conf import settings
from durableflows.core.references import SecretRef
from durableflows.errors import InvalidState, NeedsHuman


def resolve(ref: SecretRef) -> str:
    """The secret's value, now. Raises NeedsHuman when the project's resolver has none: the run waits for a person."""
    path = settings().SECRETS
    if not path:
        raise InvalidState(
            f'secret {ref.name!r} cannot be looked up: set DURABLEFLOWS["SECRETS"] to a callable of its name, '
            'such as "durableflows.secrets.from_environment"'
        )
    read = cast(Callable[[str], str], import_string(path))
    try:
        value: object = read(ref.name)
    except Exception as error:  # noqa: BLE001 - its text may hold what must not be stored
        raise NeedsHuman(f"secret {ref.name} could not be looked up ({type(error).__name__})") from None
    if not isinstance(value, str) or not value:
        raise NeedsHuman(f"secret {ref.name} has no value")
    return value


def from_environment(name: str) -> str:
    """The environment variable of this name; '' for none."""
    return os.environ.get(name, "")
