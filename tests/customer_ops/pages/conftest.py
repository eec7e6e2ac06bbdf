"""An agent at a browser, a charge, and played workers before the payment provider's sandbox."""

from collections.abc import Iterator

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import User
from django.test import Client

from customer_ops.models import Charge
from customer_ops.sandbox.control import RunningSandbox
from durableflows.testing import World, virtual
from tests.support.desk import make_agent, make_charge, make_order, usd
from tests.support.payments import KEY


@pytest.fixture
def agent(db: None) -> User:
    return make_agent()


@pytest.fixture
def browser(client: Client, agent: User) -> Client:
    """The browser of an agent who has logged in."""
    client.force_login(agent)
    return client


@pytest.fixture
def charge(db: None) -> Charge:
    """A charge of 100 dollars, for order R-1. The provider does not know it."""
    return make_charge(usd("100.00"), order=make_order(usd("100.00"), number="R-1"))


@pytest.fixture
def world(settings: LazySettings, sandbox: RunningSandbox) -> Iterator[World]:
    """Played workers and time; the sandbox takes the payments."""
    settings.PAYMENTS_URL, settings.PAYMENTS_KEY = sandbox.url, KEY
    with virtual() as world:
        yield world
