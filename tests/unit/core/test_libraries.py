"""What exceptions of well-known libraries mean, by their classes: the real ones, built by hand.

Those whose meaning rests on where they were raised are raised for real in tests/integration/test_library_errors.py.
"""

import errno
import smtplib
import socket
import ssl
import subprocess
import sys

import httpcore
import httpx
import psycopg2
import pytest
import redis
import requests
import stripe
import urllib3
from django.db import IntegrityError as DjangoIntegrityError
from django.db import OperationalError as DjangoOperationalError

from durableflows import (
    AlreadyDone,
    CredentialsRefused,
    KeyConflict,
    KeyInUse,
    NeedsHuman,
    NeverSent,
    Permanent,
    Transient,
    UnknownOutcome,
)
from durableflows.core import libraries
from durableflows.core.phases import LIBRARIES

URL = "https://api.example/refunds"


def answered(status: int, headers: dict[str, str] | None = None, method: str = "POST") -> httpx.HTTPStatusError:
    request = httpx.Request(method, URL)
    response = httpx.Response(status, headers=headers, request=request)
    return httpx.HTTPStatusError(f"answered {status}", request=request, response=response)


def replied(status: int, headers: dict[str, str] | None = None, method: str = "POST") -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    response.headers.update(headers or {})
    return requests.HTTPError(str(status), request=requests.Request(method, URL).prepare(), response=response)


def of_stripe(cls: type[stripe.StripeError], status: int | None = None, code: str | None = None) -> stripe.StripeError:
    body = {"error": {"code": code, "message": "no"}}
    headers = {"Retry-After": "9", "Content-Type": "application/json"}
    if issubclass(cls, stripe.CardError | stripe.InvalidRequestError):
        return cls("no", "charge", code=code, http_status=status, json_body=body, headers=headers)
    return cls("no", code=code, http_status=status, json_body=body, headers=headers)


def of_postgresql(sqlstate: str, module: str = "psycopg") -> Exception:
    """As psycopg 3 says it; it is not installed beside psycopg2, which Django would take second."""
    base = type("Error", (Exception,), {"__module__": module})
    return type("SomeError", (base,), {"__module__": f"{module}.errors", "sqlstate": sqlstate})("no")


def pooled(reason: Exception) -> requests.ConnectionError:
    pool = urllib3.HTTPSConnectionPool("api.example")
    return requests.ConnectionError(urllib3.exceptions.MaxRetryError(pool, "/", reason))


NEW = urllib3.exceptions.NewConnectionError(urllib3.connection.HTTPConnection("api.example"), "refused")

TABLE: list[tuple[Exception, type[Exception] | None, type[Exception] | None]] = [
    # httpx
    (httpx.ConnectError("refused"), NeverSent, NeverSent),
    (httpx.ConnectTimeout("slow"), NeverSent, NeverSent),
    (httpx.PoolTimeout("full"), NeverSent, NeverSent),
    (httpx.ProxyError("407"), NeverSent, NeverSent),
    (httpx.UnsupportedProtocol("ftp://"), NeedsHuman, None),
    (httpx.InvalidURL("?"), NeedsHuman, None),
    (httpx.WriteError("reset"), UnknownOutcome, None),
    (httpx.WriteTimeout("slow"), UnknownOutcome, None),
    (httpx.ReadError("reset"), UnknownOutcome, None),
    (httpx.ReadTimeout("slow"), UnknownOutcome, None),
    (httpx.CloseError("reset"), UnknownOutcome, None),
    (httpx.RemoteProtocolError("hung up"), UnknownOutcome, None),
    (httpx.LocalProtocolError("too little data"), UnknownOutcome, None),
    (httpx.TooManyRedirects("many"), UnknownOutcome, None),
    (httpx.DecodingError("gzip"), UnknownOutcome, None),
    (httpx.StreamClosed(), UnknownOutcome, None),
    (answered(400), Permanent, None),
    (answered(401), CredentialsRefused, CredentialsRefused),
    (answered(404, {"Content-Type": "text/html; charset=utf-8"}), UnknownOutcome, None),
    (answered(409), UnknownOutcome, None),
    (answered(429), Transient, Transient),
    (answered(500), UnknownOutcome, None),
    (answered(503), UnknownOutcome, None),
    (answered(302), UnknownOutcome, None),
    (httpcore.ConnectError("refused"), NeverSent, NeverSent),
    (httpcore.ReadTimeout("slow"), UnknownOutcome, None),
    (httpcore.RemoteProtocolError("hung up"), UnknownOutcome, None),
    # requests, urllib3
    (requests.ConnectTimeout("slow"), NeverSent, NeverSent),
    (pooled(NEW), NeverSent, NeverSent),
    (pooled(urllib3.exceptions.ProtocolError("aborted", ConnectionResetError())), UnknownOutcome, None),
    (pooled(urllib3.exceptions.ReadTimeoutError(urllib3.HTTPConnectionPool("x"), "/", "slow")), UnknownOutcome, None),
    (requests.ConnectionError(urllib3.exceptions.ProtocolError("aborted")), UnknownOutcome, None),
    (requests.ConnectionError("?"), UnknownOutcome, None),
    (requests.ReadTimeout("slow"), UnknownOutcome, None),
    (requests.Timeout("slow"), UnknownOutcome, None),
    (requests.exceptions.SSLError("?"), UnknownOutcome, None),
    (requests.exceptions.ProxyError("?"), UnknownOutcome, None),
    (requests.exceptions.ChunkedEncodingError("cut"), UnknownOutcome, None),
    (requests.exceptions.ContentDecodingError("gzip"), UnknownOutcome, None),
    (requests.exceptions.RetryError("many"), UnknownOutcome, None),
    (requests.TooManyRedirects("many"), UnknownOutcome, None),
    (requests.JSONDecodeError("no", "{", 1), UnknownOutcome, None),
    (requests.exceptions.MissingSchema("?"), NeedsHuman, None),
    (requests.exceptions.InvalidURL("?"), NeedsHuman, None),
    (replied(422), Permanent, None),
    (replied(401), CredentialsRefused, CredentialsRefused),
    (replied(502), UnknownOutcome, None),
    (NEW, NeverSent, NeverSent),
    (urllib3.exceptions.ConnectTimeoutError("slow"), NeverSent, NeverSent),
    (urllib3.exceptions.ReadTimeoutError(urllib3.HTTPConnectionPool("x"), "/", "slow"), UnknownOutcome, None),
    (urllib3.exceptions.ProtocolError("aborted"), UnknownOutcome, None),
    # stripe
    (of_stripe(stripe.APIConnectionError), UnknownOutcome, None),
    (of_stripe(stripe.CardError, 402, "expired_card"), Permanent, None),
    (of_stripe(stripe.InvalidRequestError, 400, "parameter_missing"), Permanent, None),
    (of_stripe(stripe.InvalidRequestError, 404, "resource_missing"), Permanent, None),
    (of_stripe(stripe.InvalidRequestError, 400, "charge_already_refunded"), AlreadyDone, None),
    (of_stripe(stripe.InvalidRequestError, 400, "charge_already_captured"), AlreadyDone, None),
    (of_stripe(stripe.InvalidRequestError, 409), UnknownOutcome, None),
    (of_stripe(stripe.InvalidRequestError, 429, "lock_timeout"), Transient, Transient),
    (of_stripe(stripe.RateLimitError, 429, "rate_limit"), Transient, Transient),
    (of_stripe(stripe.AuthenticationError, 401), CredentialsRefused, CredentialsRefused),
    (of_stripe(stripe.PermissionError, 403), Permanent, None),
    (of_stripe(stripe.IdempotencyError, 400), KeyConflict, None),
    (of_stripe(stripe.IdempotencyError, 409), KeyInUse, None),
    (of_stripe(stripe.IdempotencyError, 400, "idempotency_key_in_use"), KeyInUse, None),
    (of_stripe(stripe.APIError, 500), UnknownOutcome, None),
    (of_stripe(stripe.APIError, 503), UnknownOutcome, None),
    (of_stripe(stripe.APIError), UnknownOutcome, None),
    (of_stripe(stripe.AlreadyCanceledError, 400), AlreadyDone, None),
    # smtplib
    (smtplib.SMTPConnectError(421, b"busy"), NeverSent, NeverSent),
    (smtplib.SMTPHeloError(501, b"who"), NeverSent, NeverSent),
    (smtplib.SMTPAuthenticationError(535, b"no"), CredentialsRefused, CredentialsRefused),
    (smtplib.SMTPAuthenticationError(454, b"later"), Transient, Transient),
    (smtplib.SMTPNotSupportedError("SMTPUTF8"), Permanent, None),
    (smtplib.SMTPSenderRefused(550, b"no", "a@b.c"), Permanent, None),
    (smtplib.SMTPSenderRefused(451, b"later", "a@b.c"), Transient, Transient),
    (smtplib.SMTPSenderRefused(-1, b"what", "a@b.c"), UnknownOutcome, None),
    (smtplib.SMTPRecipientsRefused({"a@b.c": (550, b"no"), "d@b.c": (553, b"no")}), Permanent, None),
    (smtplib.SMTPRecipientsRefused({"a@b.c": (550, b"no"), "d@b.c": (450, b"later")}), Transient, Transient),
    (smtplib.SMTPDataError(554, b"spam"), Permanent, None),
    (smtplib.SMTPDataError(451, b"later"), Transient, Transient),
    (smtplib.SMTPServerDisconnected("gone"), UnknownOutcome, None),
    (smtplib.SMTPResponseException(250, b"?"), UnknownOutcome, None),
    (smtplib.SMTPException("?"), UnknownOutcome, None),
    # redis
    (redis.AuthenticationError("no"), CredentialsRefused, CredentialsRefused),
    (redis.BusyLoadingError("loading"), Transient, Transient),
    (redis.ReadOnlyError("replica"), Transient, Transient),
    (redis.exceptions.ClusterDownError("down"), Transient, Transient),
    (redis.OutOfMemoryError("full"), Transient, Transient),
    (redis.WatchError("changed"), Transient, Transient),
    (redis.exceptions.NoPermissionError("no"), Permanent, None),
    (redis.exceptions.NoPermissionError("no script: 9ab, on @user_script:2."), UnknownOutcome, None),
    (redis.exceptions.MaxConnectionsError("many"), NeverSent, NeverSent),
    (redis.ConnectionError("closed by server"), UnknownOutcome, None),
    (redis.TimeoutError("reading"), UnknownOutcome, None),
    (redis.ResponseError("WRONGTYPE"), UnknownOutcome, None),
    # PostgreSQL
    *((of_postgresql(code), CredentialsRefused, CredentialsRefused) for code in ("28000", "28P01")),
    *((of_postgresql(code), Transient, Transient) for code in ("40001", "40P01", "53100", "55P03", "57014", "57P03")),
    *((of_postgresql(code), Permanent, None) for code in ("22003", "23505", "42P01", "42501", "0A000", "P0001")),
    *((of_postgresql(code), UnknownOutcome, None) for code in ("08006", "40003", "57P01", "58030", "XX000", "25P02")),
    (psycopg2.OperationalError("server closed the connection unexpectedly"), UnknownOutcome, None),
    (psycopg2.InterfaceError("connection already closed"), UnknownOutcome, None),
    # sockets, TLS
    (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), NeverSent, NeverSent),
    (socket.gaierror(-2, "unknown"), NeverSent, NeverSent),
    (ssl.SSLCertVerificationError("expired"), NeverSent, NeverSent),
    (ConnectionResetError("reset"), UnknownOutcome, None),
    (BrokenPipeError("pipe"), UnknownOutcome, None),
    (TimeoutError("slow"), UnknownOutcome, None),
    (ssl.SSLError("alert"), UnknownOutcome, None),
    (ssl.SSLEOFError("eof"), UnknownOutcome, None),
    # nobody's; the project's own database says nothing of the provider
    (DjangoOperationalError("gone"), None, None),
    (DjangoIntegrityError("twice"), None, None),
    (OSError(errno.EHOSTUNREACH, "no route"), None, None),
    (FileNotFoundError("x"), None, None),
    (ValueError("bug"), None, None),
    (KeyError("bug"), None, None),
]


def named(value: object) -> str | None:
    return libraries.said(value)[:70] if isinstance(value, Exception) else None


@pytest.mark.parametrize(("error", "inside", "outside"), TABLE, ids=named)
def test_what_an_exception_means(error: Exception, inside: type[Exception] | None, outside: type[Exception] | None):
    """R13, S3.6 to S3.9: what may have left is in doubt; only what surely was not done says so."""
    for judge, wanted in ((libraries.inside, inside), (libraries.outside, outside)):
        meant = judge(error)

        assert (type(meant) if meant is not None else None) is wanted
        if meant is not None:
            assert str(meant).startswith(libraries.said(error)[:30])


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_what_only_reads_is_tried_again_outside_effects(method: str):
    """R11: an answer that was lost, or an error of the server, to a request that changes nothing."""
    request = httpx.Request(method, URL)
    errors = [
        httpx.ReadTimeout("slow", request=request),
        answered(503, {"Retry-After": "120"}, method),
        replied(502, method=method),
        requests.ReadTimeout("slow", request=requests.Request(method, URL).prepare()),
    ]

    for error in errors:
        assert type(libraries.outside(error)) is Transient
        assert type(libraries.inside(error)) is UnknownOutcome, "in an effect something else may have been sent before"
    asked = libraries.outside(errors[1])
    assert isinstance(asked, Transient)
    assert asked.retry_after_seconds == 120


@pytest.mark.parametrize("error", [answered(429, {"Retry-After": "120"}), replied(503, {"retry-after": "120"})])
def test_what_the_server_asked_for_is_kept(error: Exception):
    """R11: of what is in doubt too: it is neither sent again nor looked up before."""
    meant = libraries.inside(error)

    assert isinstance(meant, Transient | UnknownOutcome)
    assert meant.retry_after_seconds == 120


def test_a_read_that_fails_while_another_failure_was_handled():
    """Outside effects: reads may be read again; what may have changed something stays."""
    read = httpx.ReadTimeout("slow", request=httpx.Request("GET", URL))
    for handled, wanted in (("GET", Transient), ("POST", type(None))):
        read.__context__ = httpx.ReadTimeout("slow", request=httpx.Request(handled, URL))

        assert type(libraries.outside(read)) is wanted


def test_a_subclass_means_what_its_parent_means():
    class Ours(httpx.ReadTimeout):
        """A project's own."""

    assert type(libraries.inside(Ours("slow"))) is UnknownOutcome


def test_an_answer_after_redirects_says_nothing_of_what_was_sent_first():
    """R13: the first of the two requests may have acted."""
    error = answered(404)
    error.response.history = [httpx.Response(303)]

    assert type(libraries.inside(error)) is UnknownOutcome


@pytest.mark.parametrize(
    "first", [httpx.ReadTimeout("slow"), requests.ReadTimeout("slow"), UnknownOutcome("?"), TimeoutError("slow")]
)
def test_a_failure_while_another_was_handled_does_not_clear_it(first: Exception):
    """R13: hand-made retries in an `except`; the first request may have acted."""
    second = httpx.ConnectError("refused")
    second.__context__ = ValueError("a mistake in between")
    second.__context__.__context__ = first

    assert type(libraries.inside(second)) is UnknownOutcome


def test_other_mistakes_that_were_handled_change_nothing():
    second = httpx.ConnectError("refused")
    second.__context__ = KeyError("no such setting")
    second.__context__.__context__ = ConnectionRefusedError("refused")

    assert type(libraries.inside(second)) is NeverSent


def test_stripe_is_judged_by_what_it_wraps():
    for cause, wanted in (
        (NEW, NeverSent),
        (httpx.ConnectError("refused"), NeverSent),
        (NeverSent("too late"), NeverSent),
        (httpx.ReadTimeout("slow"), UnknownOutcome),
        (UnknownOutcome("no answer"), UnknownOutcome),
    ):
        error = of_stripe(stripe.APIConnectionError)
        error.__cause__ = cause

        assert type(libraries.inside(error)) is wanted


def test_no_library_is_imported():
    """The engine knows none of them; it knows their names."""
    code = (
        "import sys; from durableflows.core import libraries; libraries.inside(ValueError('x')); "
        "print([name for name in ('httpx', 'requests', 'stripe', 'redis', 'psycopg2', 'smtplib', 'ssl', 'django') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_the_last_rule_of_a_library_takes_all_that_is_left():
    """R13: a class that is new in a later version is in doubt, not an error in our code."""
    bases = {
        "httpx, httpcore": httpx.HTTPError("new"),
        "requests, urllib3": requests.RequestException("new"),
        "stripe": stripe.StripeError("new"),
        "smtplib": smtplib.SMTPException("new"),
        "redis": redis.RedisError("new"),
        "psycopg2, psycopg": psycopg2.Error("new"),
        "sockets, TLS": ConnectionError("new"),
    }

    assert set(bases) == set(LIBRARIES)
    for base in bases.values():
        new = type("New", (type(base),), {"__module__": type(base).__module__})("new")
        assert type(libraries.inside(new)) is UnknownOutcome
