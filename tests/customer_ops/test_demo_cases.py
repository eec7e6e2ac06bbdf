"""What somebody finds who opens the demo: refunds in the states that the product is about."""

import io

import pytest
from django.conf import LazySettings
from django.core.management import call_command

from customer_ops.demo import cases
from customer_ops.models import RefundRequest, RefundState
from customer_ops.sandbox.control import RunningSandbox
from durableflows.testing import virtual
from tests.support.desk import PASSWORD
from tests.support.payments import KEY


@pytest.mark.django_db(transaction=True)
def test_an_empty_desk_gets_a_paid_refund_one_whose_answer_was_lost_and_one_that_waits(
    settings: LazySettings, sandbox: RunningSandbox
) -> None:
    settings.PAYMENTS_URL, settings.PAYMENTS_KEY = sandbox.url, KEY
    call_command("seed_demo", password=PASSWORD, stdout=io.StringIO())

    with virtual() as world:
        assert cases.ask(sandbox)
        assert not cases.ask(sandbox)
        world.run_through()

    states = dict(RefundRequest.objects.values_list("charge__order__number", "state"))
    assert states == {"R-1004": RefundState.REFUNDED, "R-1008": RefundState.REFUNDED, "R-1023": RefundState.PENDING}
    books = sandbox.books()
    assert [act["amount"] for act in books.refund_acts] == [17_50, 40_00]
    assert len(books.requests_to("/v1/refunds")) == 3
    assert books.repeated == []
