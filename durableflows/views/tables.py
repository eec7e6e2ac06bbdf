"""What the list shows, as a file for auditors."""

from django.http import HttpRequest, HttpResponseBase

from durableflows.reading import inbox
from durableflows.reading.tables import as_file
from durableflows.views.doors import Door


class Table(Door):
    """A table of decisions, requests or looks, under the choice and the search of the list, all pages of it."""

    def get(self, request: HttpRequest, what: str) -> HttpResponseBase:
        return as_file(request, what, inbox.found(request, inbox.chosen(request)))
