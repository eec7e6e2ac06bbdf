"""The tables of `exports` as files that a page hands out: for those with the right, of what their list shows."""

from collections.abc import Iterator

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.urls import reverse

from durableflows import exports
from durableflows.core import cells
from durableflows.errors import NotAllowed
from durableflows.models import ApprovalRequest
from durableflows.reading.standing import now_of


def links(request: HttpRequest, page: str, query: str, *, site: str | None = None) -> list[tuple[str, str]]:
    """Each table's name and its address; none without the right. `page`: the address's name; `query`: the list's."""
    if not exports.may_export(request.user):
        return []
    return [(name, reverse(page, args=[name], current_app=site) + query) for name in exports.TABLES]


def as_file(request: HttpRequest, what: str, among: QuerySet[ApprovalRequest]) -> StreamingHttpResponse:
    """A table of these requests, with the mark that spreadsheets know UTF-8 by. Raises Http404, PermissionDenied."""
    if what not in exports.TABLES:
        raise Http404("there is no such table")
    try:
        lines = exports.lines(exports.Wanted(what, by=request.user, among=among))
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    response = StreamingHttpResponse(_marked(lines), content_type="text/csv; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{what}-{now_of(request):%Y-%m-%d}.csv"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-store"
    return response


def _marked(lines: Iterator[str]) -> Iterator[str]:
    yield cells.MARK
    yield from lines
