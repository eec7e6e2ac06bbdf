"""Who does something is asked for as the database has it now: a caller may have kept a user object for hours."""

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from durableflows import NotAllowed, NotFoundError, api, clock
from durableflows.models import ApprovalRequest
from durableflows.selectors import OPERATE
from durableflows.testing import World
from tests.support.asking import APPROVE, asked, grant, person

pytestmark = pytest.mark.django_db(transaction=True)

LENDS = "durableflows.add_delegation"
WHY = "it was asked for"

Door = Callable[[ApprovalRequest, User], object]

DOORS: dict[str, Door] = {
    "answer": lambda r, by: api.answer(r.pk, "approve", by=by, facts_digest=r.facts_digest),
    "ask_requester": lambda r, by: api.ask_requester(r.pk, "why?", by=by),
    "reassign": lambda r, by: api.reassign(r.pk, User.objects.get(username="boss"), by=by, reason=WHY),
    "delegate": lambda r, by: api.delegate(
        User.objects.get(username="aide"),
        by=by,
        giver=User.objects.get(username="boss"),
        until=clock.now() + timedelta(days=1),
        reason=WHY,
    ),
    "pause": lambda r, by: api.pause(r.run_id, by=by, reason=WHY),
    "resume": lambda r, by: api.resume(r.run_id, by=by, reason=WHY),
    "retry": lambda r, by: api.retry(r.run_id, by=by, reason=WHY),
    "extend": lambda r, by: api.extend(r.run_id, by=by, deadline=clock.now() + timedelta(days=90), reason=WHY),
    "edit": lambda r, by: api.edit(r.run_id, by=by, changes={"to": "Eve"}, reason=WHY),
    "redrive": lambda r, by: api.redrive(r.run_id, by=by, step="begin", reason=WHY),
    "compensate": lambda r, by: api.compensate(r.run_id, by=by, reason=WHY),
    "migrate": lambda r, by: api.migrate(r.run_id, by=by, reason=WHY),
    "signal": lambda r, by: api.signal(r.run_id, "word", dedup_key="1", by=by),
    "cancel": lambda r, by: api.cancel(r.run_id, by=by, reason=WHY),
    "pause_provider": lambda r, by: api.pause_provider("bank", by=by, reason=WHY),
}


def kept(*permissions: str) -> User:
    """Somebody whose rights were looked at, and taken since."""
    somebody = person("kept", *permissions)
    assert somebody.has_perms(permissions)
    somebody.user_permissions.clear()
    assert somebody.has_perms(permissions), "Django keeps them with the object"
    return somebody


@pytest.mark.parametrize("is_gone", [False, True], ids=["the right is gone", "the account is gone"])
def test_a_right_that_was_taken_meanwhile_opens_no_door(world: World, is_gone: bool):
    grant(permission=APPROVE)
    request = asked(world)
    person("boss", APPROVE), person("aide")
    by = kept(APPROVE, OPERATE, LENDS)
    if is_gone:
        User.objects.filter(pk=by.pk).update(is_active=False)

    assert [name for name, door in DOORS.items() if _is_open(door, request, by)] == []
    with pytest.raises(NotAllowed):
        api.resolve_effect(uuid4(), "happened", by=by, row_version=1, reason=WHY)

    request.refresh_from_db()
    assert request.state == "OPEN"
    assert request.run.events.filter(actor_name=by.username).count() == 0


def _is_open(door: Door, request: ApprovalRequest, by: User) -> bool:
    try:
        door(request, by)
    except (NotAllowed, NotFoundError):
        return False
    return True
