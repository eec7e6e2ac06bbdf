"""Names that must be unique, or the same for ever: idempotency keys, row ids, one-time tokens.

Owns how each is made. Called by the ledger (keys) and by whoever inserts rows (ids, tokens).
Never reads a row, and never puts an attempt number, personal data or a secret into a key.
"""

import hashlib
import json
import secrets
import time
from uuid import UUID

KEY_PREFIX = "df_"
_KEY_FORMAT = 1  # part of what is hashed: another recipe must never give the same key for another meaning


def idempotency_key(run_id: UUID | str, step: str, visit: int, item: str, operation: str, issue: int) -> str:
    """Name one logical operation: the same for every try of it, another for every other operation.

    Shapes and units   visit: arrivals at the step along the graph, from 1; item: key of a fan-out item, '' without;
                       issue: 1, and one more for each recorded verdict "confirmed not done"
    Raises             ValueError when run_id is not a UUID: the same id spelled in two ways must not give two keys
    """
    run = run_id if isinstance(run_id, UUID) else UUID(run_id)
    parts = [_KEY_FORMAT, str(run), step, int(visit), item, operation, int(issue)]
    # A JSON list keeps the borders between the parts, so ("a", "bc") and ("ab", "c") differ.
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    return KEY_PREFIX + hashlib.sha256(text.encode("ascii")).hexdigest()


def read_id(given: UUID | str) -> UUID | None:
    """Read a row's id as a caller or an address gives it; None for a text that is none."""
    try:
        return given if isinstance(given, UUID) else UUID(str(given))
    except ValueError:
        return None


def new_id() -> UUID:
    """Make a row id that sorts by the time it was made (UUIDv7).

    For the index only: a clock that is set back gives ids that sort earlier, so nothing may depend on the order.
    Source: RFC 9562, section 5.7 and 6.2 (method 3: the 12 bits after the version carry parts of a millisecond).
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    value = (milliseconds & 0xFFFF_FFFF_FFFF) << 80
    value |= 0x7 << 76 | fraction << 64
    value |= 0b10 << 62 | secrets.randbits(62)
    return UUID(int=value)


def new_token() -> UUID:
    """Make a token that cannot be guessed, for leases and one-time links (UUIDv4, 122 random bits)."""
    return UUID(bytes=secrets.token_bytes(16), version=4)
