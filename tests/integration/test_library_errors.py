"""What the libraries really raise, over real sockets, and what it is taken for: far more than their class tells.

Each case is an accident on the wire. What the server got says whether a verdict "never sent" would be a lie.
"""

import smtplib
import socket
import ssl
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from typing import Any

import httpx
import psycopg2
import pytest
import redis
import requests
import stripe
from django.db import DatabaseError, connection, connections
from redis.backoff import NoBackoff
from redis.retry import Retry
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry as UrlRetry

from durableflows import CredentialsRefused, NeverSent, Permanent, Transient, UnknownOutcome
from durableflows.core import libraries
from tests.support.raw_server import RESET, RawServer, http, raw_server

REFUSED = "http://127.0.0.1:1/"
NOWHERE = "http://nowhere.invalid/"
WAIT = 0.3

Send = Callable[[str], object]


def by_httpx(url: str, **options: object) -> object:
    with httpx.Client(timeout=WAIT, trust_env=False, **options) as client:  # type: ignore[arg-type]
        return client.post(url, content=b"x").raise_for_status()


def by_requests(url: str, **options: object) -> object:
    with requests.Session() as session:
        session.trust_env = False
        answer = session.post(url, data=b"x", timeout=WAIT, **options)  # type: ignore[arg-type]
        answer.raise_for_status()
        return answer


def by_stripe(url: str) -> object:
    sender = stripe.RequestsClient(timeout=WAIT)
    client = stripe.StripeClient(
        "sk_test_1", base_addresses={"api": url.rstrip("/")}, max_network_retries=0, http_client=sender
    )
    return client.v1.refunds.create({"charge": "ch_1"})


def meant(send: Send, url: str) -> type:
    """The class of what it is taken for; of the error itself when no library is known by it."""
    try:
        send(url)
    except Exception as error:  # noqa: BLE001 - whatever the library raises
        return type(libraries.inside(error) or error)
    return type(None)


CLIENTS = pytest.mark.parametrize("send", [by_httpx, by_requests, by_stripe], ids=lambda send: send.__name__)


@CLIENTS
@pytest.mark.parametrize("url", [REFUSED, NOWHERE])
def test_what_never_left_is_never_sent(send: Send, url: str):
    """R13 (f), (g)."""
    assert meant(send, url) is NeverSent


@CLIENTS
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="hangs up"),
        pytest.param(RESET, id="reset"),
        pytest.param(None, id="says nothing"),
        pytest.param(b"hello\r\n\r\n", id="no HTTP"),
        pytest.param(http("200 OK", '{"id": "re_1"}')[:-4], id="cut off"),
        *(pytest.param(http(f"{code} Error", "{}"), id=str(code)) for code in (408, 409, 500, 502, 503, 504)),
        pytest.param(http("404 Not Found", "<html>", content_type="text/html"), id="page of a proxy"),
    ],
)
def test_what_has_left_is_in_doubt(send: Send, answer: bytes | None):
    """R13 (a) to (d): whatever the library calls it."""
    with raw_server(answer) as server:
        assert meant(send, server.url) is UnknownOutcome

    assert len(server.received) == 1


@CLIENTS
@pytest.mark.parametrize(
    ("status", "wanted"),
    [(400, Permanent), (401, CredentialsRefused), (403, Permanent), (422, Permanent), (429, Transient)],
)
def test_what_was_refused_clearly_was_not_done(send: Send, status: int, wanted: type[Exception]):
    """R13 (h), (i)."""
    body = '{"error": {"type": "invalid_request_error", "message": "no"}}'
    with raw_server(http(f"{status} No", body, content_type="application/json")) as server:
        assert meant(send, server.url) is wanted


@CLIENTS
@pytest.mark.parametrize("answer", [http("400 Bad", ""), RESET, None], ids=["no TLS", "reset", "silent"])
def test_a_tls_handshake_that_fails_has_sent_nothing(send: Send, answer: bytes | None):
    """R13: the request would have come after it."""
    with raw_server(answer) as server:
        assert meant(send, server.url.replace("http:", "https:")) is NeverSent


@pytest.mark.parametrize(
    "send",
    [lambda url: by_httpx(url, follow_redirects=True), by_requests],
    ids=["httpx", "requests"],
)
def test_a_redirect_that_leads_nowhere_comes_after_a_request_that_was_sent(send: Send):
    """R13: "connection refused", and the first server has acted."""
    with raw_server(http("303 See Other", "", location=REFUSED)) as server:
        assert meant(send, server.url) is UnknownOutcome

    assert len(server.received) == 1


def test_retries_of_the_http_client_have_sent_before():
    """R13: sent, lost, and then "connection refused" at the second try."""
    closing: list[RawServer] = []

    class Adapter(HTTPAdapter):
        """Takes the server away when the first request has failed."""

        def get_connection_with_tls_context(self, request, verify, proxies=None, cert=None):
            pool = super().get_connection_with_tls_context(request, verify, proxies, cert)
            make = pool._new_conn

            def new():
                if closing[0].received:
                    pool.port = 1
                return make()

            vars(pool)["_new_conn"] = new
            return pool

    def send(url: str) -> object:
        with requests.Session() as session:
            session.mount("http://", Adapter(max_retries=UrlRetry(1, allowed_methods=None, backoff_factor=0)))
            return session.post(url, data=b"x", timeout=WAIT)

    with raw_server(b"") as server:
        closing.append(server)
        assert meant(send, server.url) is UnknownOutcome
    assert len(server.received) == 1


def test_retries_of_the_sdk_have_sent_before(monkeypatch: pytest.MonkeyPatch):
    """R13: Stripe's own retries; the first request may have acted."""
    monkeypatch.setattr(stripe.HTTPClient, "_sleep_time_seconds", lambda *_: 0)

    class Sender(stripe.RequestsClient):
        """Its second request finds nobody."""

        def request(self, method: str, url: str, headers: Any, post_data: Any = None) -> Any:  # type: ignore[override]
            return super().request(method, REFUSED if server.received else url, headers, post_data)

    def send(url: str) -> object:
        client = stripe.StripeClient(
            "sk_test_1", base_addresses={"api": url}, max_network_retries=1, http_client=Sender(timeout=WAIT)
        )
        return client.v1.refunds.create({"charge": "ch_1"})

    with raw_server(b"") as server:
        assert meant(send, server.url) is UnknownOutcome


@pytest.mark.parametrize("send", [by_httpx, by_requests], ids=["httpx", "requests"])
def test_a_proxy_that_cannot_be_reached_or_refuses_the_tunnel_has_passed_nothing_on(send: Callable[..., object]):
    """R13: what the proxy got names the host, and no more."""

    def through(proxy: str) -> dict[str, object]:
        return {"proxy": proxy} if send is by_httpx else {"proxies": {"https": proxy}}

    assert meant(lambda url: send(url, **through(REFUSED)), "https://api.example/") is NeverSent
    with raw_server(http("407 Log in", "")) as proxy:
        assert meant(lambda url: send(url, **through(proxy.url)), "https://api.example/") is NeverSent


# Raw sockets


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
    return socket.create_connection((host, int(port or 80)), timeout=WAIT)


def read_raw(url: str) -> object:
    with connect(url) as plain:
        plain.sendall(b"POST / HTTP/1.1\r\n\r\n")
        if not (answer := plain.recv(100)):
            raise ConnectionResetError("hung up")
        return answer


def handshake(url: str) -> object:
    with connect(url) as plain, ssl.create_default_context().wrap_socket(plain, server_hostname="x") as wrapped:
        return wrapped


def test_sockets_say_it_by_where_they_fail():
    """R13: connecting and shaking hands is before the first byte; the rest is not."""
    assert meant(read_raw, REFUSED) is NeverSent
    assert meant(read_raw, NOWHERE) is NeverSent
    for answer in (b"", RESET, None):
        with raw_server(answer) as server:
            assert meant(read_raw, server.url) is UnknownOutcome
        with raw_server(answer) as server:
            assert meant(handshake, server.url) is NeverSent


# Mail


class MailServer:
    """Speaks SMTP until a command that it hangs up on, or refuses; `texts` are the mails that came whole."""

    def __init__(self, at: bytes, reply: bytes) -> None:
        self.at, self.reply, self.texts = at, reply, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def serve(self) -> None:
        connection, _ = self.listener.accept()
        with connection, connection.makefile("rb") as lines:
            if not self._goes_on(connection, b"GREETING", b"220 hello\r\n"):
                return
            in_text = False
            for line in lines:
                word = line.strip().upper()
                if in_text and word != b".":
                    continue
                self.texts += in_text
                in_text = word == b"DATA"
                usual = {b"DATA": b"354 go on\r\n", b"QUIT": b"221 bye\r\n"}.get(word, b"250 fine\r\n")
                if not self._goes_on(connection, word, usual):
                    return

    def _goes_on(self, connection: socket.socket, word: bytes, usual: bytes) -> bool:
        is_it = word.startswith(self.at)
        if not is_it or self.reply:
            connection.sendall(self.reply if is_it else usual)
        return not is_it or bool(self.reply)


def mail(port: int) -> object:
    message = EmailMessage()
    message["From"], message["To"] = "us@example.org", "you@example.org"
    with smtplib.SMTP("127.0.0.1", port, timeout=WAIT) as server:
        return server.send_message(message)


@pytest.mark.parametrize(
    ("at", "reply", "wanted"),
    [
        (b"GREETING", b"", NeverSent),
        (b"GREETING", b"421 busy\r\n", NeverSent),
        (b"EHLO", b"", NeverSent),
        (b"MAIL", b"", Transient),
        (b"MAIL", b"550 no\r\n", Permanent),
        (b"RCPT", b"", Transient),
        (b"RCPT", b"450 later\r\n", Transient),
        (b"RCPT", b"550 unknown\r\n", Permanent),
        (b"DATA", b"", UnknownOutcome),
        (b"DATA", b"451 later\r\n", Transient),
        (b".", b"", UnknownOutcome),
        (b".", b"554 spam\r\n", Permanent),
        (b".", b"452 full\r\n", Transient),
    ],
)
def test_mail_is_in_doubt_from_the_moment_its_text_may_have_left(at: bytes, reply: bytes, wanted: type[Exception]):
    """R13, for SMTP: the same "server disconnected" at each command."""
    import threading

    server = MailServer(at, reply)
    thread = threading.Thread(target=server.serve)
    thread.start()

    assert meant(lambda _: mail(server.port), "") is wanted

    thread.join(timeout=5)
    server.listener.close()
    assert server.texts == (at == b".")


# Redis


@pytest.fixture
def dead_redis() -> redis.Redis:
    return redis.Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 2))


def test_redis_is_never_sent_while_a_connection_is_taken(dead_redis: redis.Redis):
    """R13 (f): also when its client has tried to connect several times."""
    assert meant(lambda _: dead_redis.incr("x"), "") is NeverSent


def speaking_redis(connection: socket.socket) -> Iterator[bytes]:
    while data := connection.recv(65536):
        yield data


def test_redis_that_hangs_up_on_a_command_is_in_doubt():
    """R13 (a): and its client's own retries, which then find nobody, do not clear it."""
    import threading

    listener = socket.create_server(("127.0.0.1", 0))
    seen: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            for data in speaking_redis(connection):
                if b"INCR" in data.upper():
                    seen.append(data)
                    listener.close()
                    return
                connection.sendall(b"+OK\r\n" * data.upper().count(b"CLIENT"))

    for tries in (0, 2):
        if tries:
            listener = socket.create_server(("127.0.0.1", 0))
        client = redis.Redis(
            host="127.0.0.1", port=listener.getsockname()[1], protocol=2, retry=Retry(NoBackoff(), tries)
        )
        thread = threading.Thread(target=serve)
        thread.start()
        assert meant(lambda _, client=client: client.incr("x"), "") is UnknownOutcome  # type: ignore[misc]
        thread.join(timeout=5)
    assert len(seen) == 2


# PostgreSQL


def test_postgresql_that_cannot_be_reached_was_never_asked():
    """R13 (f), (g)."""
    for place in ({"host": "127.0.0.1", "port": 1}, {"host": "nowhere.invalid"}):
        assert meant(lambda _, place=place: psycopg2.connect(**place), "") is NeverSent  # type: ignore[misc]


def _raw() -> "psycopg2.extensions.connection":
    given = connections["default"].get_connection_params()
    given.pop("cursor_factory", None)
    return psycopg2.connect(**given)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("select 1/0", Permanent),
        ("selct 1", Permanent),
        ("set statement_timeout = 5; select pg_sleep(5)", Transient),
        ("select pg_terminate_backend(pg_backend_pid())", UnknownOutcome),
    ],
)
def test_postgresql_says_by_its_sqlstate_what_was_not_done(statement: str, wanted: type[Exception]):
    """R13: but for a session that was ended, which may have committed."""

    def run(_: str) -> None:
        with _raw() as session, session.cursor() as cursor:
            cursor.execute(statement)

    assert meant(run, "") is wanted


@pytest.mark.django_db(transaction=True)
def test_an_error_of_the_project_s_own_database_says_nothing_of_the_provider():
    """R13: an effect that has called the provider, and then fails to write a row of its own."""

    def write(_: str) -> object:
        with connection.cursor() as cursor:
            return cursor.execute("insert into no_such_table values (1)")

    assert issubclass(meant(write, ""), DatabaseError)  # unclassified: in doubt, and no mark against the provider
