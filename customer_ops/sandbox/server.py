"""The sandbox on the network: two listeners, the provider's and one for control that stays when the first is closed.

Owns sockets and HTTP parsing. One thread a connection. `/_control/` is answered on both ports; everything else on the
provider's port goes to `provider`.
"""

import base64
import binascii
import json
import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from customer_ops.sandbox import control_api
from customer_ops.sandbox.answers import Answer, ApiError
from customer_ops.sandbox.courier import Courier, Endpoint
from customer_ops.sandbox.faults import Sighting
from customer_ops.sandbox.forms import parse_body, parse_json
from customer_ops.sandbox.ids import new_id
from customer_ops.sandbox.line import Line
from customer_ops.sandbox.provider import Provider, Request

logger = logging.getLogger(__name__)
LARGEST_BODY_BYTES = 1_000_000


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], sandbox: "Sandbox") -> None:
        self.sandbox = sandbox
        super().__init__(address, _Handler)

    def shutdown_request(self, request: Any) -> None:
        # The base class sends FIN before it closes; a reset must be the first thing that the client sees.
        if request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER):
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.error("sandbox: a request from %s failed", client_address, exc_info=True)  # noqa: LOG014 - inside the except of the base class


class Sandbox:
    """A provider that can be reached, and can be made unreachable."""

    def __init__(
        self, provider: Provider, *, host: str, port: int, control_port: int, endpoint: Endpoint | None = None
    ) -> None:
        self.provider = provider
        self.courier = Courier(provider.books, endpoint)
        self._lock = threading.Lock()
        self._reopening: threading.Timer | None = None
        self._api: _Server | None = self._open((host, port))
        self._address = (host, self._api.server_address[1])
        self._control = self._open((host, control_port))
        self.url = f"http://{host}:{self._address[1]}"
        self.control_url = f"http://{host}:{self._control.server_address[1]}"

    def listen(self) -> None:
        """Take connections again on the provider's port."""
        with self._lock:
            self._cancel_reopening()
            if self._api is None:
                self._api = self._open(self._address)

    def stop_listening(self, seconds: float | None = None) -> None:
        """Close the provider's port: connections are refused, for `seconds` or until `listen`."""
        with self._lock:
            self._cancel_reopening()
            closed, self._api = self._api, None
            if seconds is not None:
                self._reopening = threading.Timer(seconds, self.listen)
                self._reopening.daemon = True
                self._reopening.start()
        if closed is not None:
            _close(closed)

    def serves(self, server: _Server) -> bool:
        """Is this listener open? Connections that outlive a closed one are dropped at their next request."""
        return server in (self._api, self._control)

    def close(self) -> None:
        """Close both ports and let held requests go."""
        self.stop_listening()
        self.provider.holds.release()
        self.courier.close()
        _close(self._control)

    def reset(self) -> None:
        """Empty the books, withdraw all faults, let held requests go and listen again."""
        self.provider.plan.clear()
        self.courier.clear()
        self.provider.holds.release()
        self.provider.holds.wait_until_done(timeout_seconds=5)
        self.provider.books.empty()
        self.provider.search_lag_seconds = self.provider.terms.search_lag_seconds
        self.listen()

    def _cancel_reopening(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None

    def _open(self, address: tuple[str, int]) -> _Server:
        server = _Server(address, self)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server


def _close(server: _Server) -> None:
    server.shutdown()
    server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 75
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's signature
        logger.debug("%s %s", self.address_string(), format % args)

    def _serve(self) -> None:
        request_id = new_id("req")
        line = Line(self.connection, request_id=request_id, key=self.headers.get("Idempotency-Key"))
        address = urlsplit(self.path)
        try:
            body = self._body()
            if address.path.startswith("/_control/"):
                line.send(self._control(address.path, address.query, body))
            elif not self.server.sandbox.serves(self.server):
                line.reset()
            else:
                seen = self._sighting(address.path, address.query, body)
                self.server.sandbox.provider.handle(Request(id=request_id, seen=seen, bearer=self._bearer()), line)
        except ApiError as error:
            line.send(error.answer)
        self.close_connection = self.close_connection or line.is_cut

    def _body(self) -> str:
        length = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not length.isdigit() or int(length) > LARGEST_BODY_BYTES:
            self.close_connection = True
            raise ApiError(400, f"Send a Content-Length of at most {LARGEST_BODY_BYTES} bytes")
        try:
            return self.rfile.read(int(length)).decode()
        except UnicodeDecodeError:
            raise ApiError(400, "Invalid request body: not UTF-8") from None

    def _sighting(self, path: str, query: str, body: str) -> Sighting:
        assert self.command is not None
        is_json = self.command == "POST" and self.headers.get_content_type() == "application/json"
        params = parse_json(body) if is_json else parse_body(body if self.command == "POST" else query)
        # Stripe takes keys with POST; a GET repeats nothing.
        key = self.headers.get("Idempotency-Key") if self.command == "POST" else None
        return Sighting(method=self.command, path=path, params=params, key=key)

    def _bearer(self) -> str | None:
        scheme, _, value = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return value.strip()
        if scheme.lower() == "basic":  # curl -u sk_test_…:
            try:
                return base64.b64decode(value, validate=True).decode().partition(":")[0]
            except (binascii.Error, UnicodeDecodeError):
                return None
        return None

    def _control(self, path: str, query: str, body: str) -> Answer:
        assert self.command is not None
        try:
            order = json.loads(body) if body else {}
        except ValueError:
            raise ApiError(400, "Invalid request body: not JSON") from None
        return control_api.answer(self.server.sandbox, self.command, path, {**parse_body(query), **order})
