"""Two people must approve, and each may change what is approved: only the same values count together."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from durableflows.core import registry
from durableflows.models import ApprovalRequest
from durableflows.testing import World, virtual
from tests.support.asking import APPROVE, PAID, Lower, asked, grant, person
from tests.support.pages import LIST, Browse, address, inbox_address, text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> Iterator[World]:
    with registry.isolated(), virtual() as played:
        grant(permission=APPROVE, edits=Lower, quorum=2)
        yield played


@pytest.fixture
def mia(world: World) -> User:
    return person("mia", APPROVE, is_staff=True)


@pytest.fixture
def noa(world: World) -> User:
    return person("noa", APPROVE, is_staff=True)


def approve(client: Client, request: ApprovalRequest, amount: str) -> Any:
    given = {"verdict": "approve", "facts_digest": request.facts_digest, "edit-amount": amount}
    return client.post(inbox_address(request), given)


def test_whoever_approves_second_begins_with_what_the_first_has_approved(
    world: World, mia: User, noa: User, browse: Browse
):
    """Only the same values count together: nobody should have to copy them by hand."""
    request = asked(world)
    approve(browse(mia), request, "400.00")

    for page in (inbox_address(request), address(request)):
        shown = text(browse(noa).get(page))
        assert "<strong><bdi>mia</bdi></strong> has approved Amount: <bdi>USD 400.00</bdi>." in shown
        assert 'value="400.00"' in shown
        assert "1 of 2 have approved" in shown
    after = text(browse(noa).get(approve(browse(noa), request, "400.00")["Location"]))
    world.run_until_idle()

    assert "With changes: Amount: <strong><bdi>USD 400.00</bdi></strong>" in after
    assert [amount.amount_minor for amount in PAID] == [40_000]


def test_different_values_are_said_not_to_count_together(world: World, mia: User, noa: User, browse: Browse):
    request, client = asked(world), browse(noa)
    approve(browse(mia), request, "500.00")

    after = text(client.get(approve(client, request, "300.00")["Location"]))
    again = text(client.get(inbox_address(request)))

    assert "1 of 2 approvals that are needed are here" in after
    assert "only when they are to the same values, and these are not" in after
    assert "has approved it as it was asked." in again
    assert 'value="300.00"' in again
    assert "1 of 2 approved" in text(browse(mia).get("/durableflows/inbox/?show=all"))


def test_answering_several_at_once_leaves_out_what_somebody_has_changed(
    world: World, mia: User, noa: User, browse: Browse
):
    request = asked(world)
    approve(browse(mia), request, "400.00")

    page = text(browse(noa).get(f"{LIST}several/", {"request": [str(request.pk)]}))

    assert "mia has approved it with changes: look at it on its own page." in page
    assert 'name="verdict"' not in page
