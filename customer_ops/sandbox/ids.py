"""Identifiers as Stripe makes them. Pure."""

import secrets
import string

_LETTERS = string.ascii_letters + string.digits


def new_id(prefix: str) -> str:
    """One more, which nobody has had."""
    return f"{prefix}_" + "".join(secrets.choice(_LETTERS) for _ in range(24))
