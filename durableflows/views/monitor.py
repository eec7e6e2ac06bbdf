"""What monitors read: figures for Prometheus, and whether the engine is at work. GET only; nothing is kept or changed.

Whoever shows DURABLEFLOWS["MONITOR_TOKEN"], or may operate runs, sees all; strangers learn of the health one word, and
of the figures nothing. Figures are of all tenants, without a run's or a person's name.
"""

from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.utils.crypto import constant_time_compare
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.generic import View

from durableflows import health, metrics
from durableflows.conf import settings
from durableflows.core import log_lines
from durableflows.core.classify import describe
from durableflows.metrics import prometheus
from durableflows.reading.health import page
from durableflows.selectors import OPERATE
from durableflows.views.guard import guarded

logger = log_lines.logger("durableflows.pages")

WELL, RED, AWAY = 200, 503, "red"


def may_look(request: HttpRequest) -> bool:
    """Does the monitor show the token, or may the person operate runs?"""
    token = settings().MONITOR_TOKEN
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if token and scheme.lower() == "bearer" and constant_time_compare(given.strip(), token):
        return True
    user: Any = getattr(request, "user", None)
    return user is not None and user.is_active and bool(user.has_perm(OPERATE))


def is_logged_in(request: HttpRequest) -> bool:
    """Is it anybody's browser that we know?"""
    user: Any = getattr(request, "user", None)
    return user is not None and bool(user.is_authenticated)


@method_decorator(never_cache, name="dispatch")
class Metrics(View):
    """The figures in the text format of Prometheus; 501 where its library is not installed."""

    http_method_names = ["get", "head", "options"]

    def get(self, request: HttpRequest) -> HttpResponse:
        if not may_look(request):
            answer = HttpResponse("Say `Authorization: Bearer` and DURABLEFLOWS['MONITOR_TOKEN'].\n", status=401)
            answer.headers["WWW-Authenticate"] = 'Bearer realm="durableflows"'
            answer.headers["Content-Type"] = "text/plain; charset=utf-8"
            return answer
        if not prometheus.is_installed():
            text = "Install prometheus-client to serve metrics: pip install 'durableflows[metrics]'\n"
            return HttpResponse(text, status=501, content_type="text/plain; charset=utf-8")
        body, kind = prometheus.exposed(metrics.collect())
        return HttpResponse(body, content_type=kind)


@method_decorator(never_cache, name="dispatch")
class HealthPage(View):
    """200 while nothing is red, 503 else: as a page for the browser of who is logged in, as JSON for all others.

    Who may not look reads one sentence of the page, or one word of the JSON; while the database is away everybody does.
    """

    http_method_names = ["get", "head", "options"]

    def get(self, request: HttpRequest) -> HttpResponseBase:
        try:
            seen = health.examine()
        except (OperationalError, InterfaceError) as error:  # who looks cannot be asked for either
            logger.error("the health cannot be looked at, the database is away: %s", describe(error).text)
            return JsonResponse({"status": AWAY}, status=RED)
        status, sees_all = WELL if seen.is_well else RED, may_look(request)
        if _reads_pages(request) and (sees_all or is_logged_in(request)):
            context = {"health": seen, "sees_all": sees_all, **(page(seen) if sees_all else {})}
            return guarded(render(request, "durableflows/health.html", context, status=status))
        return JsonResponse(_told(seen) if sees_all else {"status": seen.word}, status=status)


def _reads_pages(request: HttpRequest) -> bool:
    return request.accepts("text/html") and "text/html" in request.headers.get("Accept", "")


def _told(seen: health.Health) -> dict[str, object]:
    """All of it, for programs."""
    checks = {
        check.name: {
            "value": check.value,
            "count": check.count,
            "limit": check.limit,
            "red": check.is_red,
            "says": check.says,
        }
        for check in seen.checks
    }
    jobs = {job.name: {"ran_at": job.ran_at and job.ran_at.isoformat(), "error": job.error} for job in seen.jobs}
    told = {"status": seen.word, "at": seen.at.isoformat(), "checks": checks, "jobs": jobs}
    return {**told, "runs": seen.runs, "steps": seen.steps}
