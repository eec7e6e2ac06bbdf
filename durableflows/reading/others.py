"""Who else may answer a request, by name, as far as the accounts can say; and who could be given it.

Runs code of the project (log-in backends, TENANTS_OF): never called inside a transaction of the engine.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Any

from durableflows.candidates import candidates
from durableflows.core.states import ApprovalState
from durableflows.errors import TenantsUnknown
from durableflows.models import ApprovalRequest
from durableflows.tenants import acts_in

SHOWN = 20
LOOKED_AT = 50
"""People whose tenants are asked for, for one page."""


@dataclass(frozen=True, slots=True)
class Others:
    """The names of those who may answer as well. `are_more`: there are, or may be, others beside these."""

    names: tuple[str, ...] = ()
    are_more: bool = False


def others(asked: ApprovalRequest, person: Any) -> Others:
    """Name those who are asked beside a person, in the request's tenant. Whether one may answer is asked of that one.

    Nobody is named who acts in other tenants only: who works there is not this person's to know (S2.25).
    """
    by = asked.asked_of
    if by is None or asked.state != ApprovalState.OPEN:
        return Others()
    out = {person.pk, asked.requester_id if asked.exclude_requester else None}
    looked_at = list(islice(candidates(by, superusers=False), LOOKED_AT + 1))
    found = (one for one in looked_at[:LOOKED_AT] if one.pk not in out and _acts_in(one, asked.tenant))
    names = [str(one.get_username()) for one in islice(found, SHOWN + 1)]
    return Others(tuple(names[:SHOWN]), len(names) > SHOWN or len(looked_at) > LOOKED_AT)


def _acts_in(person: Any, tenant: str) -> bool:
    """Nobody is named of whom the project cannot say it; the log has why."""
    try:
        return acts_in(person, tenant)
    except TenantsUnknown:
        return False
