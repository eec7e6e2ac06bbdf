"""The project's accounts, by the names that people log in with. Reads only; whether somebody may do a thing is asked
elsewhere.
"""

from typing import Any

from django.contrib.auth import get_user_model

from durableflows.transactions import database


def named(name: str) -> Any | None:
    """The account of this name, active or not; None for a name that nobody has."""
    users = get_user_model()
    return users._default_manager.using(database()).filter(**{users.USERNAME_FIELD: name}).first()
