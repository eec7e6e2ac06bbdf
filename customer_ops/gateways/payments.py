"""The payment provider: refund a charge, and find out whether a refund was made. Stripe's API, or the local sandbox.

Called by the declared effects; `create_charge` by the demo and by tests. Each send is one POST with the engine's key,
which is also written into the refund's metadata, so that a lookup finds exactly that refund long after the provider has
forgotten the key. Nothing here retries.

A charge has one currency and a refund request names none, so the answer is compared with what was asked; an answer
about another amount or currency is an unknown outcome, never a receipt.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import stripe
from pydantic import BaseModel

from customer_ops.gateways.payment_amounts import to_provider
from customer_ops.gateways.payment_answers import (
    METADATA_KEY,
    ChargeAnswer,
    ChargeReceipt,
    RefundAnswer,
    RefundPage,
    RefundReceipt,
    judge_charge,
    judge_refund,
)
from customer_ops.gateways.payment_exchange import ask_once
from customer_ops.gateways.wire import Deadline, is_fit_for_header
from durableflows import CannotTell, EffectCall, Found, Money, NeedsHuman, NotFound, StepFailure, UnknownOutcome

__all__ = ["ChargeReceipt", "PaymentsClient", "RefundReceipt", "create_charge", "find_refund", "ping", "refund"]

PAGE_SIZE = 100

M = TypeVar("M", bound=BaseModel)


class PaymentsClient:
    """One account at the provider. Threads and processes may share it: nothing is kept between calls."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        self._host = urlsplit(self.url).netloc.rpartition("@")[2]
        self._key = key.strip()  # a key from a mounted file often ends with a line break

    def __repr__(self) -> str:
        return f"PaymentsClient({self._host!r})"  # never the key

    def refund(self, call: EffectCall, *, charge_id: str, amount: Money) -> RefundReceipt:
        """Give money back, once for each `call.key`.

        Raises by how far it got: NeverSent; Transient: not processed; Permanent: refused, with the provider's `code`,
        or made and failed; CredentialsRefused: our key, NeedsHuman: none; AlreadyDone; KeyInUse; KeyConflict;
        UnknownOutcome.
        """
        what = f"refund of {charge_id} at {self._host}"
        params: stripe.params.RefundCreateParams = {
            "charge": charge_id,
            "amount": to_provider(amount),
            # The same at each send: the provider compares parameters, so nothing that counts tries may stand here.
            "metadata": {METADATA_KEY: call.key, "durableflows_run": call.run_id, "durableflows_step": call.step},
        }
        answer = self._ask(
            RefundAnswer,
            lambda client: client.v1.refunds.create(params, {"idempotency_key": call.key}),
            what=what,
            check=call.check,
            deadline=Deadline(call.remaining_seconds()),
        )
        return judge_refund(answer, charge_id=charge_id, amount=amount, what=what)

    def find_refund(
        self, call: EffectCall, *, charge_id: str, amount: Money
    ) -> Found[RefundReceipt] | NotFound | CannotTell:
        """Find out whether the refund of `call.key` was made.

        Never guesses: a provider that cannot be asked, two refunds under one key, or one that differs from what was
        asked are CannotTell. Raises Permanent for a refund that was made and has failed: no money was given back.
        """
        what = f"refunds of {charge_id} at {self._host}"
        try:
            found = [refund for refund in self._refunds(call, charge_id, what=what) if refund.carries(call.key)]
        except StepFailure as error:
            return CannotTell(str(error))
        if not found:
            return NotFound()
        if len(found) > 1:
            return CannotTell(f"{what}: {len(found)} carry this key: {', '.join(refund.id for refund in found)}")
        try:
            return Found(judge_refund(found[0], charge_id=charge_id, amount=amount, what=what))
        except UnknownOutcome as error:
            return CannotTell(str(error))

    def create_charge(
        self,
        *,
        key: str,
        amount: Money,
        source: str = "tok_visa",
        description: str = "",
        metadata: Mapping[str, str] | None = None,
        timeout_seconds: float = 10.0,
    ) -> ChargeReceipt:
        """Charge a card, once for each `key`: the start of a story that a refund ends. Raises as `refund` does."""
        what = f"charge of {amount} at {self._host}"
        params: stripe.params.ChargeCreateParams = {
            "amount": to_provider(amount),
            "currency": amount.currency.lower(),
            "source": source,
            "description": description,
            "metadata": dict(metadata or {}),
        }
        answer = self._ask(
            ChargeAnswer,
            lambda client: client.v1.charges.create(params, {"idempotency_key": key}),
            what=what,
            check=_always,
            deadline=Deadline(timeout_seconds),
        )
        return judge_charge(answer, amount=amount, what=what)

    def ping(self, *, timeout_seconds: float = 5.0) -> None:
        """Ask for something that changes nothing, with our key. Raises as `refund` does."""
        self._page({"limit": 1}, what=f"ping of {self._host}", check=_always, deadline=Deadline(timeout_seconds))

    def _refunds(self, call: EffectCall, charge_id: str, *, what: str) -> Iterator[RefundAnswer]:
        """All refunds of a charge, page by page, within one total time."""
        deadline = Deadline(call.remaining_seconds())
        params: stripe.params.RefundListParams = {"charge": charge_id, "limit": PAGE_SIZE}
        while True:
            page = self._page(params, what=what, check=call.check, deadline=deadline)
            yield from page.data
            if not page.has_more:
                return
            if not page.data:
                raise UnknownOutcome(f"{what}: an empty page that says there is more", code="unreadable_answer")
            params = {"charge": charge_id, "limit": PAGE_SIZE, "starting_after": page.data[-1].id}

    def _page(
        self, params: stripe.params.RefundListParams, *, what: str, check: Callable[[], None], deadline: Deadline
    ) -> RefundPage:
        return self._ask(
            RefundPage, lambda client: client.v1.refunds.list(params), what=what, check=check, deadline=deadline
        )

    def _ask(
        self,
        form: type[M],
        send: Callable[[stripe.StripeClient], stripe.StripeObject],
        *,
        what: str,
        check: Callable[[], None],
        deadline: Deadline,
    ) -> M:
        if not is_fit_for_header(self._key):
            # It could not stand in a header. Trying again does not cure a setting.
            raise NeedsHuman(f"{what}: the account's key is not set, or is malformed", code="no_key")
        return ask_once(form, send, url=self.url, key=self._key, what=what, check=check, deadline=deadline)


def _always() -> None:
    """No time by which it must be sent: nobody waits for this request to settle."""


@functools.lru_cache(maxsize=4)
def _client(url: str, key: str) -> PaymentsClient:
    return PaymentsClient(url, key)


def configured_client() -> PaymentsClient:
    """The account that the project's settings name: PAYMENTS_URL and PAYMENTS_KEY, read at each call."""
    from django.conf import settings

    return _client(settings.PAYMENTS_URL, settings.PAYMENTS_KEY)


def refund(call: EffectCall, *, charge_id: str, amount: Money) -> RefundReceipt:
    """Give money back through the configured account: see `PaymentsClient.refund`."""
    return configured_client().refund(call, charge_id=charge_id, amount=amount)


def find_refund(call: EffectCall, *, charge_id: str, amount: Money) -> Found[RefundReceipt] | NotFound | CannotTell:
    """Find a refund through the configured account: see `PaymentsClient.find_refund`."""
    return configured_client().find_refund(call, charge_id=charge_id, amount=amount)


def create_charge(*, key: str, amount: Money, source: str = "tok_visa", description: str = "") -> ChargeReceipt:
    """Charge a card through the configured account: see `PaymentsClient.create_charge`."""
    return configured_client().create_charge(key=key, amount=amount, source=source, description=description)


def ping() -> None:
    """See whether the configured account answers: see `PaymentsClient.ping`."""
    configured_client().ping()
