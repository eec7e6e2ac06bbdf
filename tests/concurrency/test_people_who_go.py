"""An account that is deleted at the instant at which its person answers or asks: nothing is decided, and it is said."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from durableflows import NotAllowed, api
from durableflows.boundaries import Boundary
from durableflows.core.states import ApprovalState
from durableflows.models import ApprovalRequest
from durableflows.testing import World
from tests.support.asking import APPROVE, again, asked, grant, person
from tests.support.rivals import Rival, gate_at

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

VERBS: dict[str, tuple[Boundary, Callable[[ApprovalRequest, User], Any]]] = {
    "answer": (
        Boundary.ANSWER_BEFORE_COMMIT,
        lambda asked, by: api.answer(asked.pk, "approve", by=by, facts_digest=asked.facts_digest),
    ),
    "ask": (Boundary.PEOPLE_BEFORE_COMMIT, lambda asked, by: api.ask_requester(asked.pk, "Why?", by=by)),
}


@pytest.mark.parametrize("verb", VERBS)
def test_who_is_deleted_meanwhile_has_said_nothing(world: World, verb: str):
    grant(permission=APPROVE)
    mia, request = person("mia", APPROVE), asked(world, by=person("asker"))
    boundary, call = VERBS[verb]
    with gate_at(boundary) as gate:
        rival = Rival(lambda: call(request, again(mia))).begin()
        gate.wait()
        mia.delete()
        gate.open()
        said = rival.outcome()

    request.refresh_from_db()
    assert isinstance(said, NotAllowed)
    assert "mia is no active user any more" in str(said)
    assert (request.state, request.decisions.count(), request.notes.count()) == (ApprovalState.OPEN, 0, 0)
