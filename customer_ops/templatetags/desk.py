"""Moments as people read them: `{% moment at now %}` gives "10:38", `{% moment_near at now %}` "at 10:38 (in 2 days)".

In the current time zone, inside a `<time>` element that has the exact moment.
"""

from datetime import datetime, timedelta

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
JUST_NOW = timedelta(seconds=5)


@register.simple_tag
def moment(at: datetime, now: datetime) -> SafeString:
    """Show a moment."""
    return _element(at, clock_words(at, now))


@register.simple_tag
def moment_near(at: datetime, now: datetime) -> SafeString:
    """Show a moment behind a sentence, and how far away it is: "at 10:38 (in 2 minutes)"."""
    is_today = timezone.localtime(at).date() == timezone.localtime(now).date()
    element = _element(at, f"{clock_words(at, now)} ({near_words(at, now)})")
    return format_html("{} {}", "at" if is_today else "on", element)


@register.simple_tag
def second(at: datetime) -> SafeString:
    """Show a moment of today to the second."""
    return _element(at, f"{timezone.localtime(at):%H:%M:%S}")


def _element(at: datetime, words: str) -> SafeString:
    local = timezone.localtime(at)
    exact = f"{local:%Y-%m-%d %H:%M:%S %Z}"
    return format_html('<time datetime="{}" title="{}">{}</time>', local.isoformat(timespec="seconds"), exact, words)


def clock_words(at: datetime, now: datetime) -> str:
    """ "10:38" today, "Wednesday, 2 December, 10:38" on another day, with the year in another year."""
    local, today = timezone.localtime(at), timezone.localtime(now)
    if local.date() == today.date():
        return f"{local:%H:%M}"
    year = "" if local.year == today.year else f" {local.year}"
    return f"{local:%A}, {local.day} {local:%B}{year}, {local:%H:%M}"


def near_words(at: datetime, now: datetime) -> str:
    """ "in 2 days", "20 minutes ago", "now"."""
    distance = at - now
    if abs(distance) < JUST_NOW:
        return "now"
    seconds = abs(distance).total_seconds()
    unit, size = next((unit, size) for unit, size in UNITS if seconds >= size)
    count = round(seconds / size)
    words = f"{count} {unit}{'' if count == 1 else 's'}"
    return f"in {words}" if distance > timedelta(0) else f"{words} ago"
