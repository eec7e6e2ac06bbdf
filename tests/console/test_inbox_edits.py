"""An approver may approve less on the page, where it is declared: drawn from the schema, checked, exact (P9)."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from durableflows.core import registry
from durableflows.models import ApprovalDecision, ApprovalRequest
from durableflows.testing import World, virtual
from tests.support.asking import APPROVE, PAID, USD_500, Lower, asked, grant, person
from tests.support.pages import Browse, address, inbox_address, text

pytestmark = pytest.mark.django_db(transaction=True)

LOWERED = {"amount": {"amount_minor": 40_000, "currency": "USD"}}


@pytest.fixture
def world() -> Iterator[World]:
    with registry.isolated(), virtual() as played:
        grant(permission=APPROVE, edits=Lower)
        yield played


@pytest.fixture
def mia(world: World) -> User:
    return person("mia", APPROVE, is_staff=True)


def send(client: Client, request: ApprovalRequest, page: str, verdict: str = "approve", **fields: str) -> Any:
    given = {"verdict": verdict, "facts_digest": request.facts_digest}
    return client.post(page, {**given, **{name.replace("_", "-"): text for name, text in fields.items()}})


def doors(request: ApprovalRequest) -> list[str]:
    return [inbox_address(request), address(request)]


def test_the_form_begins_with_what_was_asked_and_says_its_bound(world: World, mia: User, browse: Browse):
    request = asked(world)

    for page in doors(request):
        shown = text(browse(mia).get(page))
        assert 'name="edit-amount" type="text" inputmode="decimal" autocomplete="off" value="500.00"' in shown
        assert "at most USD 500.00" in shown


@pytest.mark.parametrize("door", [0, 1])
def test_less_is_approved_and_paid(door: int, world: World, mia: User, browse: Browse):
    request = asked(world)
    client = browse(mia)

    response = send(client, request, doors(request)[door], edit_amount="400.00")
    world.run_until_idle()

    assert response.status_code == 302
    assert ApprovalDecision.objects.get().edits == LOWERED
    assert [amount.amount_minor for amount in PAID] == [40_000]
    assert "With changes: Amount: <bdi>USD 400.00</bdi>" in text(client.get(doors(request)[door]))


@pytest.mark.parametrize("door", [0, 1])
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("600", "may be at most USD 500.00"),
        ("0", "must be more than nothing"),
        ("-1", "an amount without a sign"),
        ("ten", ""),
        ("1.234", ""),
        ("", ""),
        ("400\u202e", ""),
    ],
)
def test_what_does_not_fit_is_said_at_its_field_and_decides_nothing(
    door: int, typed: str, words: str, world: World, mia: User, browse: Browse
):
    request = asked(world)

    response = send(browse(mia), request, doors(request)[door], edit_amount=typed, comment="less")

    page = text(response)
    assert response.status_code == 422
    assert 'aria-invalid="true" aria-describedby="df-edit-amount-problem"' in page
    assert words.lower() in page.lower()
    assert f'value="{typed}"' in page
    assert ">less</textarea>" in page
    assert not ApprovalDecision.objects.exists()


def test_a_rejection_needs_no_amount(world: World, mia: User, browse: Browse):
    request = asked(world)

    assert send(browse(mia), request, inbox_address(request), "reject", edit_amount="ten").status_code == 302
    assert ApprovalDecision.objects.get().edits == {}


def test_nothing_changed_is_no_change(world: World, mia: User, browse: Browse):
    request = asked(world, USD_500)

    send(browse(mia), request, inbox_address(request), edit_amount="500.00")

    assert ApprovalDecision.objects.get().edits == {}


def test_a_field_that_nobody_declared_is_not_taken(world: World, mia: User, browse: Browse):
    request = asked(world)

    send(browse(mia), request, inbox_address(request), edit_amount="400", edit_to="Eve")

    assert ApprovalDecision.objects.get().edits == LOWERED
