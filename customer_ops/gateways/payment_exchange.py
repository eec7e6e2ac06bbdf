"""One request through the provider's own library, and the answer read strictly.

Owns how the library is used: a client for each request, no retries of its own, our way of sending, and no error of the
library leaving here. Called by `payments` alone. Never use the library's module-level API: it retries by itself and
invents idempotency keys.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import stripe
from pydantic import BaseModel

from customer_ops.gateways.error_answers import failure_of, read_error
from customer_ops.gateways.wire import Deadline, Reply, exchange
from durableflows import UnknownOutcome

# Otherwise the library writes a file into the home directory at its first request, which fails where there is none,
# and tells the provider about this machine.
stripe.enable_telemetry = False
# Its clients are told so one by one; this is for whoever comes to use the library otherwise.
stripe.max_network_retries = 0

M = TypeVar("M", bound=BaseModel)


def ask_once(
    form: type[M],
    send: Callable[[stripe.StripeClient], stripe.StripeObject],
    *,
    url: str,
    key: str,
    what: str,
    check: Callable[[], None],
    deadline: Deadline,
) -> M:
    """Make one exchange and give the answer as `form`.

    Raises what `wire.exchange` and `failure_of` say, and UnknownOutcome for a 200 that is not what was asked for.
    """
    once = _OneExchange(check, deadline)
    client = stripe.StripeClient(key, base_addresses={"api": url}, max_network_retries=0, http_client=once)
    try:
        return form.model_validate(send(client).to_dict())
    except (stripe.StripeError, ValueError, TypeError, LookupError, AttributeError):
        reply = once.reply
        if reply is None:
            raise
        # `from None`: these errors quote the body, and their traces hold the key.
        if 200 <= reply.status < 300:
            text = f"{what}: answered {reply.status} with something that cannot be read"
            raise UnknownOutcome(text, code="unreadable_answer", status=reply.status) from None
        raise failure_of(reply.status, reply.headers, read_error(reply.body), what=what) from None


class _OneExchange(stripe.HTTPClient):
    """What the library sends through: one exchange, remembered for whoever judges it."""

    name = "durableflows"

    def __init__(self, check: Callable[[], None], deadline: Deadline) -> None:
        super().__init__()
        self._check, self._deadline = check, deadline
        self.reply: Reply | None = None

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,
        *,
        _usage: list[str] | None = None,
    ) -> tuple[str, int, Mapping[str, str]]:
        body = (post_data or "").encode()
        self.reply = exchange(
            method.upper(), url, headers=headers or {}, body=body, check=self._check, deadline=self._deadline
        )
        return self.reply.body.decode(), self.reply.status, self.reply.headers
