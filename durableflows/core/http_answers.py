"""What an HTTP answer that is no success says about the one request it answers. Pure; for adapters and `libraries`.

Only what surely says "not done" gets a class that says so: a server may act and then fail to say so. Source: RFC 9110;
design, section 5; R11, R13, R15.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from durableflows.core.retry_after import parse_retry_after
from durableflows.errors import CredentialsRefused, KeyInUse, Permanent, StepFailure, Transient, UnknownOutcome

NOT_DONE = frozenset({425, 429})
"""Too early, too many: said before anything is done."""
REFUSED = frozenset({400, 402, 403, 404, 405, 410, 411, 413, 414, 415, 422, 431, 451})
"""Said of the request itself, which will be the same next time. 406, 409 and 412 may be said after having acted."""


def http_failure(
    status: int,
    headers: Mapping[str, str],
    *,
    what: str,
    said: str = "",
    readable: bool = True,
    key_in_use: bool = False,
    not_done: Collection[int] = (),
    now: datetime | None = None,
    **details: Any,
) -> StepFailure:
    """Say by one of our exceptions what an answer means; the adapter raises it.

    what         begins the text: "refund of ch_1 at payments.example"; said: the provider's own code and words
    readable     the body came whole and is the provider's own; a page of a proxy says nothing of the provider
    key_in_use   the provider says that an earlier request with this key is under way
    not_done     statuses by which this provider declares that it has done nothing, such as 503
    details      kept in the row with the status: no secrets, JSON values only
    Also for a success that cannot be read: it is in doubt, as redirects and all other answers are
    """
    seconds = parse_retry_after(headers, now=now)
    kept = {"code": f"http_{status}", "status": status, **details}
    text = f"{what}: answered {status}{f' {said}' if said else ''}"
    if key_in_use:
        return KeyInUse(f"{text}; it is still at work on this key", retry_after_seconds=seconds, **kept)
    if status in NOT_DONE or status in not_done:
        return Transient(f"{text}; not processed", retry_after_seconds=seconds, **kept)
    if status == 401:
        return CredentialsRefused(f"{text}; our credentials are not accepted", **kept)
    if status in REFUSED and readable:
        return Permanent(f"{text}; refused", **kept)
    return UnknownOutcome(f"{text}; that does not say whether it was done", retry_after_seconds=seconds, **kept)
