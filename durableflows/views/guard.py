"""What a browser may do with a page of ours: no inline scripts or styles, nothing from elsewhere, no frames (R28)."""

from urllib.parse import urlsplit

from django.http import HttpResponse
from django.templatetags.static import static

STYLESHEET = "durableflows/durableflows.css"
ALWAYS = (
    "default-src 'self'{files}; img-src 'self' data:{files}; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)


def guarded(response: HttpResponse, policy: str = ALWAYS) -> HttpResponse:
    """Forbid inline scripts on a page of ours, whatever text it shows. Static files may live on another host."""
    host = urlsplit(static(STYLESHEET))
    files = f" {host.scheme or 'https'}://{host.netloc}" if host.netloc else ""
    response.headers["Content-Security-Policy"] = policy.format(files=files)
    return response
