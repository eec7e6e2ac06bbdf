"""Addresses of the mail page."""

from django.urls import path, re_path

from customer_ops.mailbox import pages

KEY = r"(?P<key>[^/]+)"

urlpatterns = [
    path("", pages.letters, name="letters"),
    re_path(rf"^mails/{KEY}/$", pages.letter, name="letter"),
    re_path(rf"^mails/{KEY}/source/$", pages.source, name="source"),
]
