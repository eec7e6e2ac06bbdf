"""The mail page on the network: Django behind its own small threaded server, on this machine alone."""

from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application
from whitenoise import WhiteNoise  # type: ignore[import-untyped]


def serve(*, port: int) -> ThreadedWSGIServer:
    """Listen, and answer once `serve_forever` is called. Raises OSError for a port in use."""
    from customer_ops.mailbox.settings import STATIC_ROOT

    server = ThreadedWSGIServer(("127.0.0.1", port), WSGIRequestHandler)
    server.daemon_threads = True
    server.set_app(WhiteNoise(get_wsgi_application(), root=STATIC_ROOT, prefix="static/"))
    return server
