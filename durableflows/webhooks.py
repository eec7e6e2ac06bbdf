"""The door by which providers tell us something over HTTP: what is not signed by them leaves no trace.

    path("webhooks/payments/", ProviderWebhook.as_view(provider="payments", secrets=("payments.webhook",))),

The signature is proved over the bytes as they came, before anything is parsed, looked up or stored; then the event
goes to `api.provider_event`. Copies are answered as the first one is. Never logs a body or a secret.
Source: P14; R20.
"""

import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from django.db import DatabaseError, InterfaceError, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.http.request import UnreadablePostError
from django.http.response import HttpResponseBase
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from durableflows import api, clock
from durableflows import secrets as named_secrets
from durableflows.conf import settings
from durableflows.core import log_lines
from durableflows.core.references import SecretRef
from durableflows.errors import DurableflowsError, InvalidDefinition, InvalidState

__all__ = ["BadSignature", "Envelope", "ProviderWebhook", "Scheme", "StripeScheme"]

logger = log_lines.logger("durableflows.webhooks")

TOLERANCE_SECONDS = 300.0
KEEP_SECRETS_SECONDS = 60.0
"""Secrets are looked up so often at most: a flood of forged requests must not become a flood at the secrets' store."""
LONGEST_HEADER, MOST_SIGNATURES, LONGEST_LENGTH = 4096, 16, 15
_TIME = re.compile(r"[0-9]{1,12}")


class BadSignature(Exception):
    """A request that does not prove where it is from. Its text says why, and nothing that was sent."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every event of a provider says of itself."""

    event_id: str
    kind: str = ""
    happened_at: datetime | None = None


class Scheme(Protocol):
    """How a provider signs and wraps its events. A project writes its own for a provider of another kind."""

    def verify(self, headers: Mapping[str, str], raw: bytes, secrets: Sequence[str]) -> float:
        """Prove that the bytes are signed with one of the secrets; when, in seconds since 1970. Raises BadSignature."""

    def envelope(self, body: Mapping[str, Any]) -> Envelope:
        """Read id, kind and time. Raises KeyError, TypeError or ValueError when they are not there."""


@dataclass(frozen=True, slots=True)
class StripeScheme:
    """Stripe's: `Stripe-Signature: t=<seconds>,v1=<HMAC-SHA256 of "t.body">`, several v1 while a secret is rotated."""

    header: str = "Stripe-Signature"

    def verify(self, headers: Mapping[str, str], raw: bytes, secrets: Sequence[str]) -> float:
        """See `Scheme.verify`. Every secret is tried, and every comparison takes the same time."""
        at, signatures = self._read(headers.get(self.header, ""))
        signed = at.encode() + b"." + raw
        expected = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest().encode() for secret in secrets]
        matches = [hmac.compare_digest(one, given) for one in expected for given in signatures]
        if not any(matches):
            raise BadSignature("the signature is of none of our secrets")
        return float(at)

    def sign(self, raw: bytes, secret: str, at: float) -> str:
        """The header that comes with these bytes: for tests, and for what plays the provider."""
        signature = hmac.new(secret.encode(), f"{int(at)}.".encode() + raw, hashlib.sha256).hexdigest()
        return f"t={int(at)},v1={signature}"

    def _read(self, header: str) -> tuple[str, list[bytes]]:
        if not header or len(header) > LONGEST_HEADER:
            raise BadSignature("there is no signature" if not header else "the signature is too long")
        parts = [part.strip().partition("=") for part in header.split(",")]
        times = [value for name, _, value in parts if name == "t"]
        signatures = [value.encode(errors="replace") for name, _, value in parts if name == "v1"]
        if len(times) != 1 or not _TIME.fullmatch(times[0]) or not 0 < len(signatures) <= MOST_SIGNATURES:
            raise BadSignature("the signature has another form")
        return times[0], signatures

    def envelope(self, body: Mapping[str, Any]) -> Envelope:
        """See `Scheme.envelope`."""
        created = body.get("created")
        at = datetime.fromtimestamp(created, UTC) if isinstance(created, int) else None
        return Envelope(_text(body["id"]), _text(body.get("type", "")), at)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("an id or a type that is no text")
    return value


class _Answer(Exception):
    """Ends the request with a status and a line for the log; `cure` is for the log alone."""

    def __init__(self, status: int, why: str, *, cure: str = "") -> None:
        super().__init__(why)
        self.status, self.why = status, why
        self.told = f"{why}: {cure}" if cure else why


Names = Sequence[str] | Callable[[], Sequence[str]]


class ProviderWebhook(View):
    """Takes a provider's events: POST only, at a place of its own for each provider.

    provider           as effects name it
    secrets            names for DURABLEFLOWS["SECRETS"], or a callable that gives the secrets; several while one is
                       rotated. Without any, everything is refused with 503: the provider sends it again later
    scheme             how it signs; tolerance_seconds: how old, or how far ahead, a signature may be
    Answers            200 stored, now or before · 400 not signed, too old, or no event · 405 · 413 too large
                       · 503 could not be stored: send it again
    """

    http_method_names = ["post"]
    provider: str = ""
    secrets: Names = ()
    scheme: Scheme = StripeScheme()
    tolerance_seconds: float = TOLERANCE_SECONDS

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Callable[..., HttpResponseBase]:
        """The view, outside of ATOMIC_REQUESTS: an event that is stored stays so whatever happens afterwards."""
        if not (initkwargs.get("provider") or cls.provider) or not (initkwargs.get("secrets") or cls.secrets):
            raise InvalidDefinition(f"{cls.__name__}.as_view() needs provider=... and secrets=...")
        view: Callable[..., HttpResponseBase] = csrf_exempt(super().as_view(**initkwargs))
        for alias in connections:
            view = transaction.non_atomic_requests(using=alias)(view)
        return view

    def post(self, request: HttpRequest) -> HttpResponse:
        """Take one event."""
        try:
            self._take(request)
        except _Answer as answer:
            level = logging.ERROR if answer.status >= 500 else logging.WARNING
            logger.log(level, "a webhook of %s was refused with %s: %s", self.provider, answer.status, answer.told)
            return HttpResponse(f"{answer.why}\n", status=answer.status, content_type="text/plain; charset=utf-8")
        return HttpResponse("stored\n", content_type="text/plain; charset=utf-8")

    def _take(self, request: HttpRequest) -> None:
        raw = _raw(request)
        self._prove(request, raw)
        body = _parsed(raw)
        try:
            envelope = self.scheme.envelope(body)
        except (KeyError, TypeError, ValueError, OverflowError, OSError) as error:
            raise _Answer(400, f"it is no event: {type(error).__name__}") from None
        try:
            api.provider_event(
                self.provider, envelope.event_id, body, kind=envelope.kind, happened_at=envelope.happened_at
            )
        except InvalidState as error:
            raise _Answer(400, f"it cannot be kept: {error}") from None
        except RecursionError:
            raise _Answer(400, "it is nested too deeply") from None
        except (DatabaseError, InterfaceError, DurableflowsError) as error:
            logger.exception("an event of %s could not be stored", self.provider)
            raise _Answer(503, f"it could not be stored, send it again: {type(error).__name__}") from None

    def _prove(self, request: HttpRequest, raw: bytes) -> None:
        try:
            signed_at = self.scheme.verify(request.headers, raw, self._secrets())
        except BadSignature as error:
            raise _Answer(400, str(error)) from None
        away_seconds = abs(clock.now().timestamp() - signed_at)
        if away_seconds > self.tolerance_seconds:
            raise _Answer(400, f"it was signed {away_seconds:.0f} s away from now: it may be a recording")

    def _secrets(self) -> Sequence[str]:
        try:
            found = list(self.secrets() if callable(self.secrets) else _resolved(tuple(self.secrets)))
        except Exception as error:  # noqa: BLE001 - whatever a project's store of secrets raises may hold one
            cure = "" if callable(self.secrets) or not isinstance(error, DurableflowsError) else str(error)
            why = f"its secret could not be looked up ({type(error).__name__})"
            raise _Answer(503, why, cure=cure) from None
        found = [secret for secret in found if secret]
        if not found:
            raise _Answer(503, "no secret is set for it")
        return found


_known: dict[tuple[str, ...], tuple[float, tuple[str, ...]]] = {}


def _resolved(names: tuple[str, ...]) -> tuple[str, ...]:
    until, values = _known.get(names, (0.0, ()))
    if time.monotonic() >= until:
        values = tuple(named_secrets.resolve(SecretRef(name=name)) for name in names)
        _known[names] = (time.monotonic() + KEEP_SECRETS_SECONDS, values)
    return values


def _raw(request: HttpRequest) -> bytes:
    """The body's bytes, and no more of them than an event may have."""
    limit = settings().MAX_EVENT_BYTES
    length = request.headers.get("Content-Length", "")
    if length.isascii() and length.isdigit() and (len(length) > LONGEST_LENGTH or int(length) > limit):
        raise _Answer(413, f"it has more than {limit} bytes")
    try:
        raw = request.read(limit + 1)
    except UnreadablePostError:
        raise _Answer(400, "it broke off") from None
    if len(raw) > limit:
        raise _Answer(413, f"it has more than {limit} bytes")
    return raw


def _parsed(raw: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise _Answer(400, "it is no JSON") from None
    if not isinstance(body, dict):
        raise _Answer(400, "it is no JSON object")
    return body
