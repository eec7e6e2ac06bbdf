"""What a secret looks like: by the name it is stored under, and by the shape of a text.

Owns the lists. Called by `core.payload.redact` and by log filters. Never decides whether a value is
used, only whether it is shown; it is the last net, not the first: secrets belong into references.
"""

import re
from collections.abc import Mapping
from itertools import pairwise

MASK = "[redacted]"

_WORDS = frozenset(
    {"password", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "authorization", "cookie", "otp"}
    | {"credential", "credentials", "apikey", "cvc", "cvv", "pan"}
)
_PAIRS = frozenset(
    {("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("card", "number")},
)
_WORD_BORDER = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")

# Bounded repeats throughout: these run over whole provider answers, and must stay linear in their length.
_NAME = (
    r"(?<![\w-])[\w-]{0,100}(?:(?:api|access|private|secret)[_-]?key|token|secret|password|passwd|pwd|authorization"
    r"|credential|signature|cookie)"
)
_QUOTED = r"\"[^\"]*\"|'[^']*'"
_NEW = r"(?!\[redacted\])"  # what is masked already stays as it is: a text may pass here several times
_ADDRESS = re.compile(r"(?<=://)[^\s/@:]{0,200}:[^\s/@]{1,500}(?=@)")
"""https://user:password@host: the host stays, it says which service failed."""
_HINT = re.compile(
    r"key|token|secret|passw|pwd|authorization|credential|signature|cookie|[?&]sig=|header value", re.IGNORECASE
)
"""What each rule by name needs: most texts have nothing of it, and are done with at once."""
_NAME_RULES = (
    # addresses and keyword arguments; `key` alone is a secret in addresses only, elsewhere it names a business key
    (
        re.compile(rf"({_NAME}|(?<=[?&])(?:key|sig))={_NEW}(?:{_QUOTED}|[^&\s#;,'\"<>)\]}}]+)", re.IGNORECASE),
        rf"\1={MASK}",
    ),
    # JSON, headers and reprs: "password": "x", Authorization: Bearer x, b"password": b"x"
    (
        re.compile(
            rf"({_NAME}['\"]?\s*:\s*){_NEW}(?:(?:bearer|basic)\s+)?(?:b?(?:{_QUOTED})|[^\s,;&'\"}}\])]+)", re.IGNORECASE
        ),
        rf"\1{MASK}",
    ),
    # pairs, as libraries print headers and parameters: ("password", "x"); assignments: password = "x"
    (re.compile(rf"({_NAME}(?:['\"]\s*,|\s*=)\s*)b?(?:{_QUOTED})", re.IGNORECASE), rf"\1{MASK}"),
    # what HTTP libraries say of a header that they refuse: its value, and not its name
    (re.compile(rf"(header value:?\s+)b?(?:{_QUOTED})", re.IGNORECASE), rf"\1{MASK}"),
)
_FORM_RULES = (
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"\b(?:(?:sk|rk|pk)_(?:live|test)|whsec)_\w{4,}"), MASK),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), MASK),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), MASK),
)
# Names of fields that hold nothing but a secret: a state that has a text there is refused.
_PLAIN_WORDS = frozenset({"password", "passwd", "passphrase", "pwd", "apikey", "cvc", "cvv"})
_PLAIN_PAIRS = _PAIRS | {("client", "secret")}
# Forms that nothing but a secret has.
_KEYS = (
    re.compile(r"\b(?:(?:sk|rk)_(?:live|test)|whsec)_\w{8,}"),
    re.compile(r"\bAKIA[0-9A-Z]{16}\b"),
    re.compile(r"\bgh[pousr]_\w{30,}"),
    re.compile(r"\bxox[abprs]-[\w-]{10,}"),
    re.compile(r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
)
_CARD = re.compile(r"(?<![\w.-])[2-6]\d(?:[ -]?\d){11,17}(?![\w-])")


def is_secret_name(name: str, value: object = "") -> bool:
    """Say whether a value under this key is a secret. `token` with a number is a count, not a secret."""
    words = [word.lower() for word in _WORD_BORDER.split(name) if word]
    found = {word for word in words if word in _WORDS}
    if found == {"token"} and isinstance(value, int | float):
        return False
    return bool(found) or any(pair in _PAIRS for pair in pairwise(words))


def mask_text(text: str) -> str:
    """Mask secrets inside a text: passwords in addresses, `key=…`, bearer headers, key formats, card numbers."""
    text = _ADDRESS.sub(MASK, text)
    rules = (*_NAME_RULES, *_FORM_RULES) if _HINT.search(text) else _FORM_RULES
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return _CARD.sub(_mask_card, text)


def find_named_secret(value: object, path: str = "") -> str:
    """Say where in a JSON value a text stands under the name of a password, a key or a card's number; '' for nowhere.

    Only texts count: `password_changed` may be true, and a reference to a secret is an object.
    """
    if isinstance(value, Mapping):
        for name, part in value.items():
            where = f"{path}.{name}" if path else str(name)
            if isinstance(part, str) and part and is_plain_secret_name(str(name)):
                return where
            if found := find_named_secret(part, where):
                return found
    elif isinstance(value, list | tuple):
        return next((found for n, part in enumerate(value) if (found := find_named_secret(part, f"{path}[{n}]"))), "")
    return ""


def is_plain_secret_name(name: str) -> bool:
    """Does a field of this name hold nothing but a secret? It ends so: `password_hint` and `api_key_id` do not."""
    words = [word.lower() for word in _WORD_BORDER.split(name) if word]
    return bool(words) and (words[-1] in _PLAIN_WORDS or tuple(words[-2:]) in _PLAIN_PAIRS)


def find_secret(value: object, path: str = "") -> str:
    """Say where in a JSON value a text has the form of a key; '' for nowhere. Names and card numbers do not count:
    a state is refused for what cannot be anything else.
    """
    if isinstance(value, str):
        return (path or "the value") if _is_key(value) else ""
    if isinstance(value, Mapping):
        parts = ((f"{path}.{name}" if path else str(name), part) for name, part in value.items())
    elif isinstance(value, list | tuple):
        parts = ((f"{path}[{number}]", part) for number, part in enumerate(value))
    else:
        return ""
    return next((found for where, part in parts if (found := find_secret(part, where))), "")


def _is_key(text: str) -> bool:
    return any(pattern.search(text) for pattern in _KEYS)


def _mask_card(match: re.Match[str]) -> str:
    digits = re.sub(r"\D", "", match.group())
    return f"[card …{digits[-4:]}]" if _passes_luhn(digits) else match.group()


def _passes_luhn(digits: str) -> bool:
    total = 0
    for index, digit in enumerate(reversed(digits)):
        doubled = int(digit) * (1 + index % 2)
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0
