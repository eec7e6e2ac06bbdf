"""One HTTP exchange: one connection, one request, a total time, and certainty about whether anything was sent.

Owns sockets and time-outs for gateways that act. It asks `check` as the last thing before bytes leave, so a worker that
was stopped in between sends nothing. It never retries, follows no redirect, keeps no connection and uses no proxy from
the environment: each of those could send a request a second time or make "sent" a guess. Answers are not judged here.
"""

import functools
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from durableflows import NeverSent, UnknownOutcome

LARGEST_ANSWER_BYTES = 2_000_000

# What sockets, TLS and HTTP raise. Anything else (a time limit of the worker, say) passes through untouched: whoever
# catches it knows less than we do and treats the request as in doubt.
_FAILURES = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    OSError,
    ValueError,
)


class Deadline:
    """The total time of one operation, on the monotonic clock; it may cover several exchanges."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    def remaining_seconds(self) -> float:
        """Seconds left, never less than 0."""
        return max(0.0, self._ends_at - time.monotonic())


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    status: int
    headers: httpx.Headers
    body: bytes


def exchange(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes,
    check: Callable[[], None],
    deadline: Deadline,
) -> Reply:
    """Send one request and read its whole answer before the deadline.

    Raises NeverSent when not one byte of the request left; what `check` raises, before that; UnknownOutcome for
    everything that goes wrong afterwards. Error texts name the host and the kind of failure, never headers or bodies.
    """
    network = _Network(check, deadline)
    try:
        with httpcore.ConnectionPool(
            ssl_context=_tls(), max_keepalive_connections=0, retries=0, network_backend=network
        ) as pool:
            return _send(pool, method, url, {**headers, "Connection": "close"}, body)
    except _FAILURES as error:
        host, kind = httpx.URL(url).netloc.decode() if _is_url(url) else "a malformed address", _describe(error)
        # `from None`: a protocol error may quote a header, and the key stands in one.
        if network.has_sent:
            raise UnknownOutcome(f"{host}: {kind} after the request was sent", phase="sent") from None
        raise NeverSent(f"{host}: {kind}, nothing was sent", phase="connect") from None


def _send(pool: httpcore.ConnectionPool, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
    fields = list(headers.items())
    with pool.stream(method, url, headers=fields, content=body or None) as response:
        content = b""
        for chunk in response.iter_stream():
            content += chunk
            if len(content) > LARGEST_ANSWER_BYTES:
                raise httpcore.RemoteProtocolError(f"an answer of more than {LARGEST_ANSWER_BYTES} bytes")
        return Reply(response.status, httpx.Headers(response.headers), content)


class _Network(httpcore.NetworkBackend):
    """Connects within the deadline, and remembers whether a byte of the request has left."""

    def __init__(self, check: Callable[[], None], deadline: Deadline) -> None:
        self.check, self.deadline, self.has_sent = check, deadline, False
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception = httpcore.ConnectError("the name has no address")
        # Address by address, so that all of them together have one time-out. Resolving has none that we could set: when
        # it took too long, `check` refuses to send.
        for address in _addresses(host, port):
            seconds = self.seconds_or(httpcore.ConnectTimeout)
            try:
                return _Stream(self._sockets.connect_tcp(address, port, timeout=seconds), self)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    def seconds_or(self, too_late: type[Exception]) -> float:
        """Seconds left for the next wait on the socket."""
        seconds = self.deadline.remaining_seconds()
        if seconds <= 0:
            raise too_late("the total time is over")
        return seconds


class _Stream(httpcore.NetworkStream):
    """A connection on which each wait ends by the deadline, whatever trickles in meanwhile."""

    def __init__(self, stream: httpcore.NetworkStream, network: _Network) -> None:
        self._stream, self._network = stream, network

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, timeout=self._network.seconds_or(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # Head and body are two writes: late between them, the provider gets half a request and acts on none.
        self._network.check()
        seconds = self._network.seconds_or(httpcore.WriteTimeout)
        self._network.has_sent = True
        self._stream.write(buffer, timeout=seconds)

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        seconds = self._network.seconds_or(httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout=seconds), self._network)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _addresses(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"the name cannot be resolved ({type(error).__name__})") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _describe(error: Exception) -> str:
    text = f" ({error})" if isinstance(error, httpcore.NetworkError | httpcore.TimeoutException) and str(error) else ""
    return type(error).__name__ + text


def is_fit_for_header(key: str) -> bool:
    """Can this key of an account stand in a header? One that is empty or malformed needs a person, not a retry."""
    return bool(key) and key.isascii() and key.isprintable() and " " not in key


def _is_url(url: str) -> bool:
    try:
        return bool(httpx.URL(url).host)
    except (httpx.InvalidURL, ValueError):
        return False


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
