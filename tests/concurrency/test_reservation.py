"""Two people refund the same charge at the same instant: the row lock lets one see the other."""

import threading
import uuid

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction

from customer_ops import selectors, services
from customer_ops.errors import MoreThanLeft, RefundRefused
from customer_ops.models import Charge, RefundRequest
from durableflows import Money
from durableflows.models import WorkflowRun
from durableflows.testing import virtual
from tests.support.desk import make_agent, make_charge, usd

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

WAIT_SECONDS = 20


def ask_at_once(
    charges: list[Charge], people: list[User], tokens: list[uuid.UUID], amounts: list[Money] | None = None
) -> list[object]:
    """Ask for 60 dollars in as many threads, each on a connection of its own; what each one got, in order."""
    asked = amounts or [usd("60.00")] * len(charges)
    together = threading.Barrier(len(charges))
    results: list[object] = [None] * len(charges)

    def ask(index: int) -> None:
        try:
            connections["default"].ensure_connection()
            together.wait(WAIT_SECONDS)
            results[index] = services.request_refund(
                charges[index].pk, asked[index], "broken", by=people[index], form_token=tokens[index]
            )
        except Exception as error:  # noqa: BLE001 - the test judges what it was
            results[index] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(charges))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    return results


def test_of_two_refunds_of_60_on_a_charge_of_100_one_is_refused() -> None:
    charge = make_charge(usd("100.00"))
    people = [make_agent(), make_agent()]

    with virtual():
        results = ask_at_once([charge] * 2, people, [uuid.uuid4(), uuid.uuid4()])

    assert sorted(type(result).__name__ for result in results) == ["MoreThanLeft", "RefundRequest"]
    refusal = next(result for result in results if isinstance(result, MoreThanLeft))
    assert refusal.left == usd("40.00")
    assert selectors.balance(charge).left == usd("40.00")
    assert RefundRequest.objects.count() == WorkflowRun.objects.count() == 1


@pytest.mark.parametrize("currency", ["USD", "JPY", "KWD"])
def test_parts_that_are_asked_for_at_once_never_add_up_to_more_than_the_charge(currency: str) -> None:
    """Whoever is refused asked for more than those before had left; nobody is refused who would have fitted."""
    charge = make_charge(Money(1_000, currency))
    amounts = [Money(part, currency) for part in (410, 10, 300, 555, 95, 120, 77, 233)]
    people = [make_agent() for _ in amounts]

    with virtual():
        results = ask_at_once([charge] * 8, people, [uuid.uuid4() for _ in amounts], amounts)

    granted = [one.amount for one in results if isinstance(one, RefundRequest)]
    refused = [(asked, one.left) for asked, one in zip(amounts, results, strict=True) if isinstance(one, MoreThanLeft)]
    assert len(granted) + len(refused) == len(amounts)
    assert sum(granted, Money.zero(currency)) + selectors.balance(charge).left == charge.amount
    assert all(asked > left >= selectors.balance(charge).left for asked, left in refused)


def test_a_form_that_is_sent_twice_at_once_asks_once() -> None:
    charge, agent, token = make_charge(usd("200.00")), make_agent(), uuid.uuid4()

    with virtual():
        first, second = ask_at_once([charge] * 2, [agent] * 2, [token] * 2)

    assert isinstance(first, RefundRequest)
    assert first == second
    assert WorkflowRun.objects.count() == 1


def test_a_form_that_is_sent_for_two_charges_at_once_asks_once() -> None:
    charges, agent, token = [make_charge(), make_charge()], make_agent(), uuid.uuid4()

    with virtual():
        results = ask_at_once(charges, [agent] * 2, [token] * 2)

    assert sorted(isinstance(result, RefundRefused) for result in results) == [False, True]
    assert RefundRequest.objects.count() == WorkflowRun.objects.count() == 1


def test_the_second_waits_for_the_first_to_commit() -> None:
    charge, people = make_charge(usd("100.00")), [make_agent(), make_agent()]
    results: list[object] = []

    def ask() -> None:
        try:
            results.append(
                services.request_refund(charge.pk, usd("60.00"), "broken", by=people[1], form_token=uuid.uuid4())
            )
        except MoreThanLeft as refusal:
            results.append(refusal)
        finally:
            connections.close_all()

    second = threading.Thread(target=ask)
    with virtual():
        with transaction.atomic():
            services.request_refund(charge.pk, usd("60.00"), "broken", by=people[0], form_token=uuid.uuid4())
            second.start()
            wait_until_somebody_waits_for_a_lock()
            assert results == []
        second.join(WAIT_SECONDS)

    assert [type(result).__name__ for result in results] == ["MoreThanLeft"]


def wait_until_somebody_waits_for_a_lock() -> None:
    """Return when another connection waits for a row; fails after a while."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    ended = threading.Event()
    for _ in range(WAIT_SECONDS * 100):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")  # else a transaction sees its first look for ever
            cursor.execute(waiting)
            if cursor.fetchone()[0]:
                return
        ended.wait(0.01)
    pytest.fail("the second never waited for the first")
