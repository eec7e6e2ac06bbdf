"""What Django's system check says about telling people: notifiers that are none, links that lead nowhere."""

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core import checks

from durableflows import notifiers


def check_notices(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """E009: what one of NOTIFIERS names is none. E010: BASE_URL is no address. W017: notices have no links."""
    given = getattr(django_settings, "DURABLEFLOWS", {})
    paths, base = given.get("NOTIFIERS", ()), given.get("BASE_URL", "")
    named = [path for path in paths if isinstance(path, str) and path] if isinstance(paths, list | tuple) else []
    return [*_notifiers(named), *_address(base), *_links(named, base)]


def _notifiers(paths: Sequence[str]) -> Iterator[checks.CheckMessage]:
    for path in paths:
        try:
            notifiers.load(path)
        except Exception as error:  # noqa: BLE001 - importing the project's module can fail in any way
            hint = 'Name classes by their dotted paths, such as "durableflows.notifiers.MailNotifier".'
            yield checks.Error(
                f"DURABLEFLOWS names NOTIFIERS {path!r}, which is no notifier ({type(error).__name__}: {error})",
                hint=hint,
                id="durableflows.E009",
            )


def _address(base: object) -> Iterator[checks.CheckMessage]:
    if not isinstance(base, str) or not base:  # not a text: E001
        return
    parts = urlsplit(base)
    if (
        parts.scheme not in ("http", "https")
        or not parts.netloc
        or parts.query
        or parts.fragment
        or not _is_plain(base)
    ):
        hint = 'Say how people reach this project, such as "https://desk.example.com".'
        yield checks.Error(f"DURABLEFLOWS has BASE_URL {base!r}, no address", hint=hint, id="durableflows.E010")


def _is_plain(text: str) -> bool:
    return text.isprintable() and " " not in text


def _links(paths: Sequence[str], base: object) -> Iterator[checks.CheckMessage]:
    if paths and not base:
        hint = 'Set DURABLEFLOWS["BASE_URL"], such as "https://desk.example.com".'
        yield checks.Warning(
            "DURABLEFLOWS has NOTIFIERS and no BASE_URL: notices say what is asked, and not where to answer it",
            hint=hint,
            id="durableflows.W017",
        )


CHECKS = (check_notices,)
