"""Helpers for tests of the payment gateway: a call, and all that an error would show of itself."""

import time
import traceback

import pytest

from customer_ops.gateways.payments import PaymentsClient
from durableflows import DurableflowsError, EffectCall, Money

KEY = "sk_test_local"
"""What both the sandbox and the foreign mock take."""

USD = "USD"
TEN = Money(1000, USD)


def call(key: str = "df_1", *, timeout_seconds: float = 5.0, send_in_seconds: float = 60.0) -> EffectCall:
    """A send of one refund, as the engine would describe it."""
    return EffectCall(
        key=key,
        operation="payments.refund",
        effect="payments.refund",
        provider="payments",
        run_id="018f-run",
        step="pay",
        send=1,
        first_dispatched_at=None,
        timeout_seconds=timeout_seconds,
        send_by=time.monotonic() + send_in_seconds,
    )


def failure(
    url: str, key: str = KEY, *, timeout_seconds: float = 5.0, send_in_seconds: float = 60.0
) -> DurableflowsError:
    """The error of one refund at this address."""
    with pytest.raises(DurableflowsError) as caught:
        PaymentsClient(url, key).refund(
            call(timeout_seconds=timeout_seconds, send_in_seconds=send_in_seconds), charge_id="ch_1", amount=TEN
        )
    return caught.value


def all_text(error: BaseException) -> str:
    """All that a log or a monitor would show of an error, its causes included."""
    details = getattr(error, "details", {})
    return "".join(traceback.format_exception(error)) + repr(error) + repr(details)
