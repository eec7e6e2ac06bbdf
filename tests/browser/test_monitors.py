"""What Prometheus scrapes from a web process, of what a worker did: both as a deployment has them."""

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.browser import Person
from tests.support.browser_refunds import Desk, ask, decide, open_question, see
from tests.support.browser_shop import MONITOR_TOKEN

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def fetched(desk: Desk, path: str, token: str = MONITOR_TOKEN) -> str:
    request = Request(f"{desk.url}/durableflows/{path}", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, timeout=20) as answer:
        return str(answer.read().decode())


def scraped(desk: Desk) -> Samples:
    families = text_string_to_metric_families(fetched(desk, "metrics"))
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def figure(samples: Samples, name: str, **labels: str) -> float:
    """The sum of what has these labels, among others."""
    return sum(
        value
        for (found, its), value in samples.items()
        if found == f"durableflows_{name}" and labels.items() <= set(its)
    )


def test_a_refund_that_a_worker_has_paid_is_scraped_from_the_web_process(
    desk: Desk, agent: Person, manager: Person
) -> None:
    order = desk.take_order()
    ask(agent, order)
    question = open_question(manager, order)
    waiting = scraped(desk)
    decide(question, "Approve")
    see(agent.page, "refunded")

    after = scraped(desk)
    # Other stories may have left some open, and theirs come and go.
    assert figure(waiting, "requests", workflow="refund") >= 1
    assert figure(waiting, "oldest_request_seconds") > 0
    ended = {"workflow": "refund", "state": "SUCCEEDED"}
    assert figure(after, "runs_ended_lately", **ended) >= 1
    assert figure(after, "sends_lately", provider="payments") >= 1
    assert figure(after, "workers") == 1
    assert figure(after, "last_sweep_seconds") < 30


def test_a_wrong_token_scrapes_nothing(desk: Desk) -> None:
    with pytest.raises(HTTPError) as refused:
        fetched(desk, "metrics", token="guessed")

    refused.value.close()
    assert refused.value.code == 401
    assert "status" in json.loads(fetched(desk, "health/"))
