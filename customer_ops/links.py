"""What every page of the desk may link to beside itself: a context processor, named in the settings."""

from django.conf import settings
from django.http import HttpRequest


def demo_pages(_request: HttpRequest) -> dict[str, str]:
    """Give the address of the demo's mail page; "" outside the demo, where no link is shown."""
    return {"demo_mail_page": settings.DEMO_MAIL_PAGE}
