"""Who else may answer a request, by name, as far as the accounts can say; and who could be given it.

Runs code of the project (log-in backends): never called inside a transaction of the engine.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Any

from durableflows.candidates import candidates
from durableflows.core.states import ApprovalState
from durableflows.models import ApprovalRequest

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Others:
    """The names of those who may answer as well. `are_more`: there are others beside these."""

    names: tuple[str, ...] = ()
    are_more: bool = False


def others(asked: ApprovalRequest, person: Any) -> Others:
    """Name those who are asked beside a person. Whether one of them may answer is asked when that one does."""
    by = asked.asked_of
    if by is None or asked.state != ApprovalState.OPEN:
        return Others()
    out = {person.pk, asked.requester_id if asked.exclude_requester else None}
    found = (one for one in candidates(by, superusers=False) if one.pk not in out)
    names = [str(one.get_username()) for one in islice(found, SHOWN + 1)]
    return Others(tuple(names[:SHOWN]), len(names) > SHOWN)
