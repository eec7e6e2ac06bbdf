"""The desk links to the demo's mail page where there is one."""

import pytest
from django.test import Client

from tests.support.desk import make_agent


@pytest.fixture
def browser(client: Client, db: None) -> Client:
    """The browser of an agent who has logged in."""
    client.force_login(make_agent())
    return client


def test_the_demo_s_mails_are_linked_from_the_desk(browser: Client, settings) -> None:
    settings.DEMO_MAIL_PAGE = "http://127.0.0.1:8025/"

    page = browser.get("/").content.decode()

    assert '<a href="http://127.0.0.1:8025/">Mails</a>' in page


def test_outside_the_demo_no_mails_are_linked(browser: Client) -> None:
    assert "Mails" not in browser.get("/").content.decode()
