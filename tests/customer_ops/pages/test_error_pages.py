"""Pages for what went wrong: in the desk's look, with a way out, and without what could go wrong again."""

import pytest
from django.db import DatabaseError
from django.template.loader import get_template
from django.test import Client, RequestFactory
from django.views.defaults import server_error

from customer_ops import cards
from customer_ops.models import Charge
from tests.support.desk import make_user
from tests.support.desk_pages import text, words

STYLE = '<link rel="stylesheet" href="/static/customer_ops/app.css">'


def test_what_is_not_there_says_so_and_leads_out(browser: Client) -> None:
    for path in ("/orders/none/", "/nowhere/", "/?page=99"):
        page = browser.get(path)
        assert page.status_code == 404
        assert "There is no such page" in words(page)
        assert STYLE in text(page)
        assert 'href="/">Show all orders' in text(page)


def test_what_is_not_allowed_says_who_one_is(client: Client, db: None) -> None:
    client.force_login(make_user(name="nora"))

    page = client.get("/")

    assert page.status_code == 403
    assert "You are logged in as nora" in words(page)
    assert "Log out" in words(page)


def test_a_form_from_an_old_page_says_what_to_do() -> None:
    page = Client(enforce_csrf_checks=True).post("/login/", {"username": "x"})

    assert page.status_code == 403
    assert "The form is out of date" in words(page)
    assert "nothing was done" in words(page)


def test_the_address_of_a_form_leads_to_its_page(browser: Client, charge: Charge) -> None:
    page = browser.get("/orders/R-1/refund/")

    assert (page.status_code, page["Allow"]) == (405, "POST")
    assert 'href="/orders/R-1/">Open the page' in text(page)


def test_an_error_of_ours_is_told_without_context_and_without_the_database() -> None:
    """The test has no database: a page that asked it for the user would fail."""
    page = server_error(RequestFactory().get("/"))

    assert page.status_code == 500
    assert "not paid twice" in page.content.decode()
    assert STYLE in page.content.decode()
    assert get_template("500.html").render() == page.content.decode()


def test_a_broken_page_shows_it_and_no_traceback(
    browser: Client, charge: Charge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: object, **options: object) -> None:
        raise DatabaseError("secret of the server")

    monkeypatch.setattr(cards, "charge_cards", away)
    browser.raise_request_exception = False

    page = browser.get("/orders/R-1/")

    assert page.status_code == 500
    assert "Something went wrong" in words(page)
    assert "secret" not in words(page)


def test_the_log_in_page_says_what_was_wrong_and_keeps_the_name(client: Client, db: None) -> None:
    page = client.post("/login/", {"username": "nora", "password": "wrong", "next": "/"})

    assert "Please enter a correct username and password" in words(page)
    assert 'value="nora"' in text(page)
    assert "wrong" not in text(page).replace("co-field-wrong", "")


def test_what_cannot_be_read_is_answered_in_words(client: Client, db: None) -> None:
    """A form in a character set that Django refuses: whoever reads it once more fails as the first time."""
    page = client.post("/login/", b"username=x", content_type="application/x-www-form-urlencoded; charset=utf-16")

    assert page.status_code == 400
    assert "Nothing was done" in words(page)
    assert STYLE in text(page)
    assert "Content-Security-Policy" in page
