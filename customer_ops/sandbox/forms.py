"""What a request asks for: form-encoded parameters -> a checked value, or a refusal that no key remembers.

Pure. Stripe checks parameters before an endpoint starts, so nothing here looks at the books.
"""

import json
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl

from customer_ops.sandbox import currencies
from customer_ops.sandbox.answers import ApiError, missing_param

Params = dict[str, str]
LARGEST_AMOUNT = 2**63 - 1
PAGE_LIMIT = 100

_NESTED = re.compile(r"(?P<name>\w+)\[(?P<key>[^\]]*)\]")
_CHARGE_FIELDS = {"amount", "currency", "source", "description", "customer"}
_REFUND_FIELDS = {"charge", "amount", "reason"}
_LIST_FIELDS = {"charge", "limit", "starting_after"}
_REASONS = ("duplicate", "fraudulent", "requested_by_customer")


@dataclass(frozen=True, slots=True)
class ChargeForm:
    """POST /v1/charges."""

    amount: int
    currency: str
    source: str
    description: str | None
    metadata: Params


@dataclass(frozen=True, slots=True)
class RefundForm:
    """POST /v1/refunds. Without an amount: what is left of the charge."""

    charge: str
    amount: int | None
    reason: str | None
    metadata: Params


@dataclass(frozen=True, slots=True)
class ListForm:
    """GET /v1/refunds."""

    charge: str | None
    limit: int
    starting_after: str | None


def parse_body(text: str) -> Params:
    """Read `a=1&metadata[b]=2`, kept flat: the names stay as they were sent."""
    try:
        return dict(parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), errors="strict"))
    except ValueError:
        raise ApiError(400, "Invalid request body: not form-encoded") from None


def parse_json(text: str) -> Params:
    """Read `{"a": "1"}`: one object of texts."""
    try:
        found = json.loads(text)
    except ValueError:
        raise ApiError(400, "Invalid request body: not JSON") from None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ApiError(422, "Invalid request body: an object of texts is needed")
    return found


def parse_charge(params: Params, *, strict: bool) -> ChargeForm:
    """Check the parameters of a charge."""
    refuse_unknown(params, _CHARGE_FIELDS)
    amount, currency = _whole(params, "amount"), _required(params, "currency").lower()
    currencies.check_known(currency)
    currencies.check_digits(amount, currency, strict=strict)
    currencies.check_minimum(amount, currency)
    source = params.get("source", "")
    if not source:
        raise ApiError(400, "Must provide source or customer.", code="parameter_missing")
    return ChargeForm(amount, currency, source, params.get("description"), _metadata(params))


def parse_refund(params: Params) -> RefundForm:
    """Check the parameters of a refund."""
    refuse_unknown(params, _REFUND_FIELDS)
    charge, reason = _required(params, "charge"), params.get("reason")
    amount = _whole(params, "amount") if "amount" in params else None
    if reason is not None and reason not in _REASONS:
        raise ApiError(400, f"Invalid reason: must be one of {', '.join(_REASONS)}", param="reason")
    return RefundForm(charge, amount, reason, _metadata(params))


def parse_list(params: Params) -> ListForm:
    """Check the parameters of a list of refunds."""
    refuse_unknown(params, _LIST_FIELDS)
    limit = _whole(params, "limit") if "limit" in params else 10
    if limit > PAGE_LIMIT:
        raise _not_whole(f"Limit can range between 1 and {PAGE_LIMIT}.", "limit")
    return ListForm(params.get("charge"), limit, params.get("starting_after"))


def refuse_unknown(params: Params, known: set[str]) -> None:
    """Refuse a parameter that the endpoint does not know."""
    for name in params:
        if name not in known and not name.startswith("metadata["):
            raise ApiError(400, f"Received unknown parameter: {name}", code="parameter_unknown", param=name)


def _required(params: Params, name: str) -> str:
    if not params.get(name):
        raise missing_param(name)
    return params[name]


def _whole(params: Params, name: str) -> int:
    text = _required(params, name)
    if not re.fullmatch(r"-?[0-9]{1,19}", text) or int(text) > LARGEST_AMOUNT:
        raise _not_whole(f"Invalid integer: {text[:40]}", name)
    if int(text) < 1:
        raise _not_whole("This value must be greater than or equal to 1.", name)
    return int(text)


def _not_whole(message: str, name: str) -> ApiError:
    return ApiError(400, message, code="parameter_invalid_integer", param=name)


def _metadata(params: Params) -> Params:
    found: Params = {}
    for name, value in params.items():
        match = _NESTED.fullmatch(name)
        if match and match["name"] == "metadata" and value:  # Stripe: an empty value unsets the key
            found[match["key"]] = value
    if len(found) > 50 or any(len(k) > 40 or len(v) > 500 for k, v in found.items()):
        raise ApiError(400, "Metadata: at most 50 keys of 40 characters, values of 500", param="metadata")
    return found
