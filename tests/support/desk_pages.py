"""What tests of the desk's pages say often: hostile texts and targets, and how a form is posted."""

import re
import uuid
from typing import Any

from django.contrib.messages import get_messages
from django.test import Client

from customer_ops.models import Charge

SCRIPT = "<script>alert(1)</script>"
BREAK_OUT = "\" onmouseover='alert(2)' x=\"'><img src=x onerror=alert(3)>"
CLOSING = "</script></textarea></title><script>alert(4)</script>"
BRACES = "{{ 7|add:7 }}{% load static %}{{ request.user.password }}"
ADDRESS = "javascript:alert(5)"
HOSTILE = (SCRIPT, BREAK_OUT, CLOSING, BRACES, ADDRESS)
"""R28: each must be shown as the text that it is, wherever it came in."""

ELSEWHERE = (
    "https://other.example",
    "//other.example",
    "///other.example",
    "/\\other.example",
    "http:other.example",
    "javascript:alert(1)",
    "https://testserver@other.example",
    "/x\r\nLocation: https://other.example",
    "%2f%2fother.example",
    "%252f%252fother.example",
    "https:///other.example",
    "\t//other.example",
)
"""R29: where no answer may lead."""


def send(browser: Client, of: Charge, **fields: str) -> Any:
    """Send the refund form of a charge, as it was before it had a choice: the amount alone."""
    form = {"charge": str(of.pk), "amount": "60.00", "reason": "broken", "form_token": str(uuid.uuid4())}
    return browser.post(f"/orders/{of.order.number}/refund/", {**form, **fields})


def text(response: Any) -> str:
    """The page as it is sent."""
    return str(response.content.decode())


def words(response: Any) -> str:
    """What a person reads."""
    shown = re.sub(r"(?s)<head>.*?</head>|<[^>]+>", " ", text(response))
    return re.sub(r"\s+", " ", shown)


def errors_in(response: Any) -> str:
    """The errors that a page shows."""
    return " ".join(re.findall(r'<ul class="co-errors".*?</ul>', text(response), re.DOTALL))


def said(response: Any) -> str:
    """The messages that an answer leaves for the next page."""
    return " ".join(str(message) for message in get_messages(response.wsgi_request))


def is_inert(page: str) -> bool:
    """Does nothing of `HOSTILE` stand there as markup, in an attribute of its own, or as an address?"""
    tags = re.findall(r"<[a-zA-Z][^>]*>", page)
    return (
        not any(piece in page for piece in ("<script>", "<img", "</textarea></title>", ">1414", "14{%", "md5$"))
        and not any(re.search(r"\son[a-z]+=", re.sub(r'"[^"]*"', "", tag)) for tag in tags)
        and not re.search(r"""(href|action|src)\s*=\s*["']?\s*javascript:""", page, re.IGNORECASE)
    )


def leads_home(location: str) -> bool:
    """Is it a path of this site, for every browser?"""
    return bool(re.fullmatch(r"/(?![/\\])[^\r\n\t]*", location))
