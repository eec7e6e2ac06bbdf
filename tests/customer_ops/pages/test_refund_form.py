"""The form that asks for a refund: what it takes, what it refuses and how, and that sending twice does no harm."""

import re
import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from customer_ops.models import Charge, RefundRequest
from durableflows import Money
from durableflows.models import WorkflowRun
from tests.support.desk import make_charge, make_user, usd
from tests.support.desk_pages import errors_in, send, text, words


def send_all(browser: Client, charge: Charge, shown: str, **fields: str) -> Any:
    return send(browser, charge, **{"how": "all", "shown_left": shown, "amount": "", **fields})


def test_a_refund_is_asked_for_and_shown_with_its_progress(browser: Client, charge: Charge) -> None:
    """B.7."""
    response = send(browser, charge)

    assert (response.status_code, response["Location"]) == (302, "/orders/R-1/")
    page = browser.get("/orders/R-1/")
    assert "The refund of $60.00 is under way." in words(page)
    assert "All that is left: $40.00" in words(page)
    assert 'value="40.00"' in text(page)


@pytest.mark.parametrize(
    ("amount", "says"),
    [
        ("NaN", "is not an amount"),
        ("1e2", "is not an amount"),
        ("-5.00", "without a sign"),
        ("0", "more than nothing"),
        ("10.005", "nothing is rounded"),
        ("XXX 10.00", "ISO 4217"),
        ("EUR 10.00", "must be in USD"),
        ("100.01", "$100.00 left"),
        ("", "required"),
    ],
)
def test_a_bad_amount_is_refused_beside_its_field(browser: Client, charge: Charge, amount: str, says: str) -> None:
    response = send(browser, charge, amount=amount, how="part")

    assert response.status_code == 422
    assert says in errors_in(response)
    assert not RefundRequest.objects.exists()
    field = re.search(rf'<input[^>]*id="charge-{charge.pk}-amount"[^>]*>', text(response))
    assert field is not None
    assert 'aria-invalid="true"' in field[0]
    assert f'aria-describedby="charge-{charge.pk}-amount_error"' in field[0]
    assert f'id="charge-{charge.pk}-amount_error"' in text(response)


@pytest.mark.parametrize("fields", [{"reason": "  "}, {"reason": "x" * 501}, {"form_token": ""}, {"form_token": "1"}])
def test_other_bad_fields_are_refused(browser: Client, charge: Charge, fields: dict[str, str]) -> None:
    response = send(browser, charge, **fields)

    assert response.status_code == 422
    assert errors_in(response)
    assert not RefundRequest.objects.exists()


def test_a_refusal_is_summed_up_on_top_leads_to_the_field_and_keeps_what_was_typed(
    browser: Client, charge: Charge
) -> None:
    page = text(send(browser, charge, amount="7.777", reason="the shade is broken", how="part"))

    assert "<title>Refused: Order R-1</title>" in page
    summary = re.search(r'<div class="co-summary"[^>]*>', page)
    assert summary is not None
    assert all(part in summary[0] for part in ('role="alert"', 'tabindex="-1"', "autofocus"))
    assert f'<a href="#charge-{charge.pk}-amount">Amount in USD</a>' in page
    assert 'value="7.777"' in page
    assert "the shade is broken</textarea>" in page


def test_all_that_is_left_is_refunded(browser: Client, charge: Charge) -> None:
    send(browser, charge, amount="60.00")

    assert send_all(browser, charge, "40.00").status_code == 302

    assert {request.amount for request in RefundRequest.objects.all()} == {usd("60.00"), usd("40.00")}
    assert "Refund from this charge" not in words(browser.get("/orders/R-1/"))


def test_all_that_is_left_is_refused_when_it_is_not_what_was_shown(browser: Client, charge: Charge) -> None:
    send(browser, charge, amount="60.00")

    response = send_all(browser, charge, "100.00")

    assert "You were shown $100.00 as all that is left; by now $40.00 is left" in errors_in(response)
    assert 'name="shown_left" value="40.00"' in text(response)
    assert RefundRequest.objects.count() == 1


def test_nothing_left_is_said_of_a_form_that_was_open_too_long(browser: Client, charge: Charge) -> None:
    send(browser, charge, amount="100.00")

    response = send_all(browser, charge, "100.00")

    assert "by now nothing is left" in errors_in(response)


@pytest.mark.parametrize("shown", ["", "nonsense", "EUR 5.00"])
def test_all_without_saying_how_much_that_was_is_refused(browser: Client, charge: Charge, shown: str) -> None:
    response = send_all(browser, charge, shown)

    assert response.status_code == 422
    assert not RefundRequest.objects.exists()


def test_all_and_another_amount_is_not_guessed(browser: Client, charge: Charge) -> None:
    response = send_all(browser, charge, "100.00", amount="10.00")

    assert "another amount stands here" in errors_in(response)
    assert not RefundRequest.objects.exists()
    assert send_all(browser, charge, "100.00", amount="100").status_code == 302


def test_a_form_sent_twice_asks_once(browser: Client, charge: Charge) -> None:
    token = str(uuid.uuid4())

    assert [send(browser, charge, form_token=token).status_code for _ in range(2)] == [302, 302]

    assert RefundRequest.objects.count() == WorkflowRun.objects.count() == 1


def test_a_form_for_all_sent_twice_asks_once(browser: Client, charge: Charge) -> None:
    token = str(uuid.uuid4())

    codes = [send_all(browser, charge, "100.00", form_token=token).status_code for _ in range(2)]

    assert codes == [302, 302]
    assert RefundRequest.objects.count() == WorkflowRun.objects.count() == 1


def test_a_form_sent_twice_with_other_content_is_refused(browser: Client, charge: Charge) -> None:
    token = str(uuid.uuid4())
    send(browser, charge, form_token=token)

    response = send(browser, charge, form_token=token, amount="10.00")

    assert response.status_code == 422
    assert "sent before" in errors_in(response)


@pytest.mark.parametrize("reason", ["broken \U0001f600 ü", "broken \\u0000"], ids=["emoji", "a written-out escape"])
def test_a_reason_is_kept_and_shown_as_it_was_written(browser: Client, charge: Charge, reason: str) -> None:
    """R30."""
    assert send(browser, charge, reason=reason).status_code == 302

    assert RefundRequest.objects.get().reason == reason
    assert reason in words(browser.get("/orders/R-1/"))


def test_a_reason_with_nul_is_refused_beside_its_field(browser: Client, charge: Charge) -> None:
    """R30."""
    response = send(browser, charge, reason="bro\x00ken")

    assert response.status_code == 422
    assert "Null characters" in errors_in(response)
    assert not RefundRequest.objects.exists()


def test_without_the_right_nobody_asks_or_is_offered_to(client: Client, charge: Charge) -> None:
    client.force_login(make_user("approve_refund"))

    assert send(client, charge).status_code == 403
    assert b"Refund from this charge" not in client.get("/orders/R-1/").content
    assert not RefundRequest.objects.exists()


@pytest.mark.parametrize("key", ["", "0", "-1", "abc", "9" * 30, "1\x00", "\u0663"])
def test_a_charge_of_no_order_is_not_found(browser: Client, charge: Charge, key: str) -> None:
    assert send(browser, charge, charge=key).status_code == 404


def test_a_charge_of_another_order_is_not_found(browser: Client, charge: Charge) -> None:
    assert send(browser, charge, charge=str(make_charge().pk)).status_code == 404


def test_a_form_without_the_token_of_the_site_is_refused(agent: User, charge: Charge) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(agent)

    response = send(strict, charge)

    assert response.status_code == 403
    assert "The form is out of date" in words(response)


def test_who_was_logged_out_meanwhile_is_told_and_comes_back_to_the_order(client: Client, charge: Charge) -> None:
    response = send(client, charge)

    assert (response.status_code, response["Location"]) == (302, "/login/?next=/orders/R-1/")
    assert "nothing was done" in words(client.get("/login/"))


def test_yen_are_shown_and_asked_for_without_decimals(browser: Client) -> None:
    charge = make_charge(Money(5800, "JPY"))

    assert 'value="5800"' in text(browser.get(f"/orders/{charge.order.number}/"))
    assert send(browser, charge, amount="10.5").status_code == 422
    assert send(browser, charge, amount="5800").status_code == 302
    assert RefundRequest.objects.get().amount == Money(5800, "JPY")


def test_each_charge_has_a_form_of_its_own(browser: Client, charge: Charge) -> None:
    other = make_charge(usd("5.00"), order=charge.order)

    page = text(browser.get("/orders/R-1/"))
    ids = re.findall(r'\sid="([^"]+)"', page)

    assert {f"charge-{one.pk}-form" for one in (charge, other)} <= set(ids)
    assert len(ids) == len(set(ids))
