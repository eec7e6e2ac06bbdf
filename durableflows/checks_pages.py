"""What Django's system check says about the engine's pages in this project's addresses."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core import checks
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve, reverse


def check_log_in(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """W018: strangers at the inbox, and whoever follows the link in a mail, are sent to a page that is not there."""
    if not _has_pages() or _is_there(django_settings.LOGIN_URL):
        return []
    hint = (
        'Add path("accounts/", include("django.contrib.auth.urls")) with a template registration/login.html, or set '
        "LOGIN_URL. Silence this where another server answers that address."
    )
    return [
        checks.Warning(
            f"LOGIN_URL is {str(django_settings.LOGIN_URL)!r}, which this project's urls do not have: nobody can log "
            "in to the inbox",
            hint=hint,
            id="durableflows.W018",
        )
    ]


def _has_pages() -> bool:
    """Are the engine's pages among the project's addresses? A project of workers alone has none at all."""
    if not getattr(django_settings, "ROOT_URLCONF", ""):
        return False
    try:
        reverse("durableflows:inbox")
    except NoReverseMatch:
        return False
    return True


def _is_there(given: Any) -> bool:
    """Does an address, or the name of one, lead to a page of this project? Of another site's nobody here can say."""
    try:
        address = resolve_url(given)
        if address.startswith("/") and not address.startswith("//"):
            resolve(f"/{address.partition('?')[0].removeprefix(get_script_prefix())}")
    except (NoReverseMatch, Resolver404):
        return False
    return True


CHECKS = (check_log_in,)
