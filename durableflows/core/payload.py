"""JSON values as we store, compare, measure and show them.

Owns the canonical form (one value, one byte string, in every process), the digests made from it, size
limits, what PostgreSQL can store, and masking of secrets. Anybody may call it. Never touches a row and
never knows what a value means.
"""

import hashlib
import hmac
import json
import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TypeAlias

from pydantic import JsonValue

from durableflows.core.secrecy import MASK, is_secret_name, mask_text
from durableflows.errors import InvalidState

JSON: TypeAlias = JsonValue
"""What JSON can say: None, bool, int, float, str, list and dict with text keys, nested."""

MOST_NESTED = 100
"""Levels of what somebody sends: writing a value takes more of Python's stack than reading it does."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def canonical(value: object) -> bytes:
    """Write a JSON value in its one canonical form: sorted keys, no spaces, UTF-8.

    A whole number has one spelling whatever its type (1.0 and 1e0 are 1): PostgreSQL's jsonb gives 1e16 back
    as an integer, and the digest of what was read must be that of what was written.
    Raises InvalidState for anything that is not JSON: other types, keys that are not text, NaN, infinity, lone
    surrogates; and for whole numbers of more digits than Python reads back.
    """
    plain = _plain(value, "")
    try:
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    except ValueError as error:  # more than sys.get_int_max_str_digits()
        raise InvalidState(f"a number has too many digits: {error}") from None
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidState(f"text with a lone surrogate ({error.object[error.start]!a}) is not JSON") from None


def same(one: object, other: object) -> bool:
    """Are both the same JSON value, as their canonical form would say? Python takes true for 1 and false for 0."""
    return one == other and _same_kinds(one, other)


def _same_kinds(one: object, other: object) -> bool:
    """Of two values that Python takes for equal: is none a truth value where the other one is a number?"""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_same_kinds(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return all(map(_same_kinds, one, other))
    return isinstance(one, bool) is isinstance(other, bool)


def sha256(value: object) -> str:
    """Digest a JSON value: hex of SHA-256 over its canonical form."""
    return hashlib.sha256(canonical(value)).hexdigest()


def keyed_digest(value: object, key: bytes) -> str:
    """Digest a JSON value so that only holders of the key can make it: hex of HMAC-SHA256 over its canonical form."""
    return hmac.new(key, canonical(value), hashlib.sha256).hexdigest()


def parsed(text: str) -> JSON:
    """Read JSON that a person or a page has sent. Raises ValueError for what is none, or is nested beyond all sense."""
    try:
        value: JSON = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level: list[JSON] = [value]
    for _ in range(MOST_NESTED):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return value
    raise ValueError("it is nested too deeply")


def _inside(value: JSON) -> Iterable[JSON]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def check_size(value: object, limit_bytes: int, what: str) -> None:
    """Refuse a JSON value whose canonical form is longer than the limit.

    Raises InvalidState naming `what`, both sizes and the cure.
    """
    size_bytes = len(canonical(value))
    if size_bytes > limit_bytes:
        raise InvalidState(
            f"{what} is {size_bytes} bytes, the limit is {limit_bytes}: store it as an artifact and keep its reference",
        )


def storable(value: JSON) -> JSON:
    """Make text that PostgreSQL can store: U+0000 and lone surrogates become the visible mark ⟦U+0000⟧.

    For facts that must never be lost (receipts, error texts). All other text stays as it is, also the six
    characters backslash-u-0-0-0-0. Works on text alone and on whole JSON values, keys included.
    """
    return _map_text(value, storable_text)


def storable_text(text: str) -> str:
    """Do for one text what `storable` does for a JSON value."""
    return _UNSTORABLE.sub(lambda match: f"⟦U+{ord(match.group()):04X}⟧", text)


def unstorable_in(text: str) -> str | None:
    """Name the first character that PostgreSQL cannot store ("U+0000"), or return None."""
    match = _UNSTORABLE.search(text)
    return f"U+{ord(match.group()):04X}" if match else None


def check_text(text: object, limit: int, what: str) -> None:
    """Refuse what a person or caller gave when it is not text, is too long, or cannot be stored.

    Raises InvalidState naming `what`.
    """
    if not isinstance(text, str):
        raise InvalidState(f"{what} must be text, not {type(text).__name__}")
    if len(text) > limit:
        raise InvalidState(f"{what} may have {limit} characters, this has {len(text)}")
    found = unstorable_in(text)
    if found is not None:
        raise InvalidState(f"{what} contains {found} (NUL or a lone surrogate), which cannot be stored")


def redact(value: JSON) -> JSON:
    """Mask what looks secret, by name of its key and by shape of its text; the rest stays readable.

    For views, logs and error texts. The value that is acted on must not go through here: it would be changed.
    """
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, list):
        return [redact(item) for item in value]
    if isinstance(value, dict):
        return {name: MASK if is_secret_name(name, item) else redact(item) for name, item in value.items()}
    return value


def mask_texts(value: JSON) -> JSON:
    """Mask secrets inside the texts of a value, whatever the names beside them: for what is stored and shown."""
    if isinstance(value, dict):
        return {name: mask_texts(item) for name, item in value.items()}
    return [mask_texts(item) for item in value] if isinstance(value, list) else _map_text(value, mask_text)


def _map_text(value: JSON, change: Callable[[str], str]) -> JSON:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_text(item, change) for item in value]
    if isinstance(value, dict):
        return {change(name): _map_text(item, change) for name, item in value.items()}
    return value


def _plain(value: object, path: str) -> JSON:
    """Copy a JSON value with numbers in their one spelling; refuse what is not JSON, naming where it is."""
    # Exact types: an enum member or a subclass may print as something else than it compares to.
    if value is None or type(value) is str or type(value) is bool or type(value) is int:
        return value
    if type(value) is float:
        return _plain_number(value, path)
    if isinstance(value, list):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {_plain_name(name, path): _plain(item, f"{path}.{name}") for name, item in value.items()}
    raise InvalidState(f"{_at(path)}{type(value).__name__} is not a JSON value")


def _plain_number(value: float, path: str) -> int | float:
    if not math.isfinite(value):
        raise InvalidState(f"{_at(path)}{value} is not a JSON number")
    # By way of the decimal spelling: int(1.5e300) would write out the binary value, which jsonb does not.
    return int(Decimal(repr(value))) if value.is_integer() else value


def _plain_name(name: object, path: str) -> str:
    if type(name) is not str:
        raise InvalidState(f"{_at(path)}key {name!r} is {type(name).__name__}, JSON keys are text")
    return name


def _at(path: str) -> str:
    return f"{path.lstrip('.')}: " if path else ""
