"""Addresses about a run: only of what the project has named, with values that cannot become anything else."""

import pytest

from durableflows.core import run_links

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def test_each_is_made_of_what_is_known_of_the_run():
    templates = {
        "Trace": "https://jaeger.example.com/trace/{trace}",
        "Errors": "https://sentry.example.com/issues/?query=durableflows.run:{run}",
        "Logs": "https://logs.example.com/{workflow}/{run}",
    }

    assert run_links.links(templates, run="r1", workflow="re fund/&", traceparent=PARENT) == [
        ("Trace", f"https://jaeger.example.com/trace/{TRACE}"),
        ("Errors", "https://sentry.example.com/issues/?query=durableflows.run:r1"),
        ("Logs", "https://logs.example.com/re%20fund%2F%26/r1"),
    ]


@pytest.mark.parametrize("parent", [None, "", 7, f"00-{TRACE}", PARENT + "?x=<script>", PARENT.replace("0af", "zzz")])
def test_a_link_that_needs_a_trace_is_left_out_where_there_is_none(parent: object):
    templates = {"Trace": "https://jaeger.example.com/trace/{trace}"}

    assert run_links.links(templates, run="r1", workflow="refund", traceparent=parent) == []


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("https://logs.example.com/{run", "expected '}'"),
        ("https://logs.example.com/{secret}", "{secret} is not one of {run}, {workflow}, {trace}"),
        ("https://logs.example.com/{run.__class__}", "{run.__class__} is not one of"),
        ("https://logs.example.com/{run!r}", "{run} is not one of"),
        ("https://logs.example.com/{}", "{} is not one of"),
        ("javascript:alert(1)//{run}", "should begin with https:// or http://"),
        ("/trace/{trace}", "should begin with https:// or http://"),
    ],
)
def test_what_is_no_template_is_said(address: str, says: str):
    (problem,) = run_links.problems(address)

    assert says in problem


def test_a_template_without_a_mistake_is_taken():
    assert run_links.problems("https://sentry.example.com/{workflow}?q={run}&t={trace}") == []
