"""How far a request had got, by the exception that a library raised: the tables. Data for `core.libraries`.

The first rule that fits decides, and the last of each library takes all that is left: in doubt. A rule that says
"nothing was done" needs proof: a class that is raised in that phase alone, or a function of the connecting phase in
the traceback. Written against httpx 0.28, requests 2.34, urllib3 2.8, stripe 16, redis 8, psycopg2 2.9, psycopg 3.3
and Python 3.11. Source: design, section 5; R13.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from durableflows.core.outcomes import AnswerKind as K
from durableflows.core.raised import chain, names, passes

By = Callable[[BaseException], bool]


def always(error: BaseException) -> bool:
    """No condition."""
    return True


@dataclass(frozen=True, slots=True)
class Rule:
    """Exceptions, by `library.Class`, and what they say of the request. `says` None: what the answer's status says."""

    names: tuple[str, ...]
    says: K | None
    when: str = ""
    fits: By = always


def while_connecting(error: BaseException) -> bool:
    """Did it fail while a connection was made: before the first byte of a request?"""
    return any(_is_refusal(one) or _in_connect(one) for one in chain(error))


def _is_refusal(error: BaseException) -> bool:
    never = {"ConnectionRefusedError", "socket.gaierror", "socket.herror", "ssl.SSLCertVerificationError"}
    more = {"urllib3.NewConnectionError", "urllib3.ConnectTimeoutError", "httpx.ConnectError", "httpx.ConnectTimeout"}
    return bool((never | more) & set(names(error)))


def _in_connect(error: BaseException) -> bool:
    return (
        passes(error, "socket", "create_connection", "getaddrinfo")
        or passes(error, "urllib3.util.connection", "create_connection")
        or passes(error, "ssl", "do_handshake")
        or passes(error, "http.client", "_tunnel")
        or passes(error, "urllib3.connection", "_tunnel")
    )


def sqlstate_of(error: BaseException) -> str:
    """What PostgreSQL has answered; "" when it has not."""
    found = (getattr(one, "sqlstate", None) or getattr(one, "pgcode", None) for one in chain(error))
    return str(next(filter(None, found), ""))


def _answered(*starts: str) -> By:
    return lambda error: sqlstate_of(error).startswith(starts)


def _opening_session(error: BaseException) -> bool:
    opened = passes(error, "psycopg2", "connect") or passes(error, "psycopg.connection", "connect")
    return opened or passes(error, "psycopg.connection_async", "connect")


def _login_refused(error: BaseException) -> bool:
    said = str(error)
    return _opening_session(error) and ("authentication failed" in said or "no pg_hba.conf entry" in said)


def _taking_connection(error: BaseException) -> bool:
    return passes(error, "redis.connection", "get_connection")


def _alone(error: BaseException) -> bool:
    """Was it one command? A pipeline, and a script, may have carried out what stood before the one that failed."""
    in_pipeline = passes(error, "redis.client", "execute", "_execute_transaction", "_execute_pipeline")
    return not in_pipeline and "script:" not in str(error)


def _code_of(error: BaseException) -> str:
    return str(getattr(error, "code", None) or "")


def _key_is_in_use(error: BaseException) -> bool:
    return _code_of(error) == "idempotency_key_in_use" or getattr(error, "http_status", None) == 409


def _is_already_so(error: BaseException) -> bool:
    return "_already_" in _code_of(error)


def _lock_timeout(error: BaseException) -> bool:
    return _code_of(error) in ("lock_timeout", "rate_limit")


def _replies(error: BaseException) -> list[int]:
    refused = getattr(error, "recipients", None)
    if isinstance(refused, dict):
        return [int(code) for code, _ in refused.values()]
    return [int(getattr(error, "smtp_code", 0) or 0)]


def _for_now(error: BaseException) -> bool:
    codes = _replies(error)
    return all(400 <= code < 600 for code in codes) and any(code < 500 for code in codes)


def _for_good(error: BaseException) -> bool:
    return all(500 <= code < 600 for code in _replies(error))


def _before_mail(error: BaseException) -> bool:
    return passes(error, "smtplib", "connect", "ehlo", "helo", "starttls", "login")


def _before_text(error: BaseException) -> bool:
    return passes(error, "smtplib", "mail", "rcpt")


def _cause_says_unsent(error: BaseException) -> bool:
    inner = chain(error)[1:]
    return "durableflows.NeverSent" in (names(inner[0]) if inner else ()) or while_connecting(error)


_CONNECTING = "while connecting, TLS handshake and proxy tunnel included"
_ELSE = "anything else"
_ALONE = "of one command; not of a pipeline or script"

HTTPX = (
    Rule(("httpx.ConnectError", "httpx.ConnectTimeout", "httpx.PoolTimeout", "httpx.ProxyError"), K.NOT_SENT),
    Rule(
        ("httpcore.ConnectError", "httpcore.ConnectTimeout", "httpcore.PoolTimeout", "httpcore.ProxyError"), K.NOT_SENT
    ),
    Rule(("httpx.UnsupportedProtocol", "httpx.InvalidURL", "httpcore.UnsupportedProtocol"), K.NEEDS_HUMAN),
    Rule(("httpx.HTTPStatusError",), None),
    Rule(("httpx.HTTPError", "httpx.StreamError"), K.UNKNOWN, _ELSE),
    Rule(("httpcore.NetworkError", "httpcore.TimeoutException", "httpcore.ProtocolError"), K.UNKNOWN, _ELSE),
)
REQUESTS = (
    Rule(("requests.ConnectTimeout",), K.NOT_SENT),
    Rule(
        ("requests.InvalidURL", "requests.MissingSchema", "requests.InvalidSchema", "requests.InvalidHeader"),
        K.NEEDS_HUMAN,
    ),
    Rule(("requests.HTTPError",), None),
    Rule(("requests.ConnectionError", "requests.Timeout"), K.NOT_SENT, _CONNECTING, while_connecting),
    Rule(("requests.RequestException",), K.UNKNOWN, _ELSE),
    Rule(("urllib3.ClosedPoolError", "urllib3.EmptyPoolError"), K.NOT_SENT),
    Rule(("urllib3.LocationValueError", "urllib3.InvalidHeader"), K.NEEDS_HUMAN),
    Rule(("urllib3.HTTPError",), K.NOT_SENT, _CONNECTING, while_connecting),
    Rule(("urllib3.HTTPError",), K.UNKNOWN, _ELSE),
)
STRIPE = (
    Rule(("stripe.APIConnectionError",), K.NOT_SENT, "when what it wraps says so", _cause_says_unsent),
    Rule(("stripe.APIConnectionError",), K.UNKNOWN, _ELSE),
    Rule(("stripe.IdempotencyError",), K.IN_USE, "status 409 or `idempotency_key_in_use`", _key_is_in_use),
    Rule(("stripe.IdempotencyError",), K.CONFLICT, _ELSE),
    Rule(("stripe.AlreadyCanceledError",), K.ALREADY),
    Rule(("stripe.StripeError",), K.ALREADY, "a code like `charge_already_refunded`", _is_already_so),
    Rule(("stripe.StripeError",), K.NOT_DONE, "`lock_timeout` and `rate_limit`", _lock_timeout),
    Rule(("stripe.StripeError",), None, _ELSE),
)
SMTP = (
    Rule(("smtplib.SMTPAuthenticationError",), K.NOT_DONE, "the server says 4xx", _for_now),
    Rule(("smtplib.SMTPAuthenticationError",), K.CREDENTIALS, _ELSE),
    Rule(("smtplib.SMTPConnectError", "smtplib.SMTPHeloError"), K.NOT_SENT),
    Rule(("smtplib.SMTPNotSupportedError",), K.REJECTED),
    Rule(
        ("smtplib.SMTPRecipientsRefused", "smtplib.SMTPSenderRefused", "smtplib.SMTPDataError"),
        K.REJECTED,
        "the server says 5xx, of each recipient",
        _for_good,
    ),
    Rule(
        ("smtplib.SMTPRecipientsRefused", "smtplib.SMTPSenderRefused", "smtplib.SMTPDataError"),
        K.NOT_DONE,
        "the server says 4xx, of one at least",
        _for_now,
    ),
    Rule(("smtplib.SMTPServerDisconnected",), K.NOT_SENT, "before a mail was begun", _before_mail),
    Rule(("smtplib.SMTPServerDisconnected",), K.NOT_DONE, "after `MAIL` or `RCPT`, before `DATA`", _before_text),
    Rule(("smtplib.SMTPException",), K.UNKNOWN, f"{_ELSE}, and from `DATA` on"),
)
REDIS = (
    Rule(("redis.AuthenticationError",), K.CREDENTIALS, _ALONE, _alone),
    Rule(("redis.MaxConnectionsError",), K.NOT_SENT),
    Rule(
        ("redis.ConnectionError", "redis.TimeoutError"), K.NOT_SENT, "while a connection is taken", _taking_connection
    ),
    Rule(
        (
            *("redis.BusyLoadingError", "redis.ReadOnlyError", "redis.ClusterDownError", "redis.TryAgainError"),
            *("redis.OutOfMemoryError", "redis.WatchError"),
        ),
        K.NOT_DONE,
        _ALONE,
        _alone,
    ),
    Rule(("redis.NoPermissionError",), K.REJECTED, _ALONE, _alone),
    Rule(("redis.RedisError",), K.UNKNOWN, _ELSE),
)
_PG = ("psycopg2.Error", "psycopg.Error")
POSTGRESQL = (
    Rule(_PG, K.CREDENTIALS, "SQLSTATE 28, or the log-in is refused", _answered("28")),
    Rule(_PG, K.CREDENTIALS, "the log-in is refused, without a SQLSTATE", _login_refused),
    Rule(_PG, K.NOT_SENT, "while the session is opened", _opening_session),
    Rule(
        _PG,
        K.NOT_DONE,
        "SQLSTATE 40001, 40P01, 53, 55P03, 57014, 57P03",
        _answered("40001", "40P01", "53", "55P03", "57014", "57P03"),
    ),
    Rule(_PG, K.REJECTED, "SQLSTATE 0A, 22, 23, 42, 44, P0", _answered("0A", "22", "23", "42", "44", "P0")),
    Rule(_PG, K.UNKNOWN, _ELSE),
)
SOCKETS = (
    Rule(("ConnectionRefusedError", "socket.gaierror", "socket.herror", "ssl.SSLCertVerificationError"), K.NOT_SENT),
    Rule(("OSError",), K.NOT_SENT, "while connecting, TLS handshake included", while_connecting),
    Rule(("ConnectionError", "TimeoutError", "ssl.SSLError"), K.UNKNOWN, _ELSE),
)

LIBRARIES: Mapping[str, tuple[Rule, ...]] = {
    "httpx, httpcore": HTTPX,
    "requests, urllib3": REQUESTS,
    "stripe": STRIPE,
    "smtplib": SMTP,
    "redis": REDIS,
    "psycopg2, psycopg": POSTGRESQL,
    "sockets, TLS": SOCKETS,
}


def rule_of(error: BaseException) -> Rule | None:
    """Find the rule that says what the error means; None: it is of no library that is known here."""
    known = set(names(error))
    rules = (rule for rules in LIBRARIES.values() for rule in rules)
    return next((rule for rule in rules if known.intersection(rule.names) and rule.fits(error)), None)
