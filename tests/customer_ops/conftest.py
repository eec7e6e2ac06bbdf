"""A running payment provider with empty books, for every test in this folder."""

from collections.abc import Iterator

import pytest

from customer_ops.gateways.payments import PaymentsClient
from customer_ops.sandbox.control import RunningSandbox, running_sandbox
from durableflows import Money
from tests.support.payments import KEY, USD


@pytest.fixture(scope="session")
def sandbox_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSandbox]:
    with running_sandbox(books=tmp_path_factory.mktemp("sandbox") / "books.sqlite3") as running:
        yield running


@pytest.fixture
def sandbox(sandbox_process: RunningSandbox) -> RunningSandbox:
    """The provider: empty books, no faults, listening."""
    sandbox_process.reset()
    return sandbox_process


@pytest.fixture
def payments(sandbox: RunningSandbox) -> PaymentsClient:
    """Our account at the provider."""
    return PaymentsClient(sandbox.url, KEY)


@pytest.fixture
def charge(payments: PaymentsClient) -> str:
    """The id of a charge of 100 dollars."""
    return payments.create_charge(key="charge", amount=Money(10_000, USD)).id
