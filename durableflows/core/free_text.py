"""What people write freely, as rows keep it: reasons and comments, with secrets masked.

Every door that stores such a text calls this before any lock. Never touches a row. Source: P14, R30.
"""

from unicodedata import category

from durableflows.core.disguise import BLANK
from durableflows.core.payload import check_text
from durableflows.core.secrecy import mask_text
from durableflows.errors import InvalidState

LONGEST = 4000


def kept(text: str, what: str, *, limit: int = LONGEST) -> str:
    """The text as it is stored: what looks like a secret is masked, everything else is left letter for letter.

    Raises InvalidState naming `what`, for no text, one that is too long, or one that cannot be stored.
    """
    check_text(text, limit, what)
    return mask_text(text)


def kept_reason(reason: str, verb: str) -> str:
    """Why a person does something, as it is stored. Raises InvalidState as `kept`, and when nothing of it is seen."""
    masked = kept(reason, "the reason")
    if not is_seen(reason):
        raise InvalidState(f"{verb} needs a reason: it stays on the record")
    return masked


def is_seen(text: str) -> bool:
    """Is anything of the text seen: a letter, a digit, a sign?"""
    return any(category(one)[0] in "LNPS" and one not in BLANK for one in text)
