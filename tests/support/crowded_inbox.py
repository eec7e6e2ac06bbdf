"""An inbox with thousands of open requests, and what its pages take: for `python -m tests.measure_inbox`."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.runner import DiscoverRunner
from django.test.utils import CaptureQueriesContext, setup_test_environment

from durableflows import Money, api
from durableflows.models import ApprovalRequest, StepRun
from durableflows.reading.window import EPOCH
from durableflows.runner import run_step
from tests.support.bonus import PERMISSION, declare
from tests.support.many import copy_request

INBOX = "/durableflows/inbox/"
MOST_QUERIES, MOST_MILLISECONDS, TURNS = 15, 300.0, 7


@dataclass(frozen=True)
class Taken:
    """What one page took: queries, and milliseconds of several turns."""

    name: str
    queries: int
    milliseconds: list[float]

    @property
    def is_slow(self) -> bool:
        """Did it take more than it may? By its middle turn: one alone may have met somebody else's work."""
        return self.queries >= MOST_QUERIES or self.middle >= MOST_MILLISECONDS

    @property
    def middle(self) -> float:
        """The milliseconds of the turn that half of them were slower than."""
        return statistics.median(self.milliseconds)

    def __str__(self) -> str:
        worst = max(self.milliseconds)
        return f"{self.name:28} {self.queries:3} queries {self.middle:7.1f} ms, at most {worst:7.1f} ms"


def measured(count: int) -> Iterator[Taken]:
    """Make a database with so many open requests, and look at each page of the inbox as their approver."""
    setup_test_environment()
    runner = DiscoverRunner(verbosity=0, interactive=False)
    old = runner.setup_databases()
    try:
        client = _crowd(count)
        assert ApprovalRequest.objects.filter(state="OPEN").count() == count
        for name, address in _pages():
            yield _taken(name, client, address)
    finally:
        runner.teardown_databases(old)


def _crowd(count: int) -> Client:
    """All of one right, a tenth of them handed on; the approver may decide each."""
    declare()
    manager, asker = User.objects.create_user("manager"), User.objects.create_user("asker")
    manager.user_permissions.add(Permission.objects.get(codename=PERMISSION.partition(".")[2]))
    run = api.start("bonus", {"amount": Money(60000, "USD"), "customer": "Ada"}, by=asker, version=1)
    for name in ("prepare", "ask"):
        run_step(run.pk, StepRun.objects.get(run=run, name=name).pk)
    copy_request(ApprovalRequest.objects.get().pk, count - 1)
    handed_on = ApprovalRequest.objects.order_by("id")[: count // 10].values("pk")
    ApprovalRequest.objects.filter(pk__in=handed_on).update(ladder_position=1)
    client = Client()
    client.force_login(manager)
    return client


def _pages() -> Iterator[tuple[str, str]]:
    for show in ("mine", "team", "overdue", "by_me", "asked", "all"):
        yield f"the list: {show}", f"{INBOX}?show={show}"
    for sort in ("newest", "oldest"):
        yield f"the list: {sort}", f"{INBOX}?sort={sort}"
    yield "a search that finds all", f"{INBOX}?q=ada"
    yield "a search that finds nothing", f"{INBOX}?q=nobody"
    middle = ApprovalRequest.objects.order_by("expires_at", "id")[ApprovalRequest.objects.count() // 2]
    cursor = f"{(middle.expires_at - EPOCH) // timedelta(microseconds=1)}.{middle.pk.hex}"
    yield "a page from the middle", f"{INBOX}?after={cursor}"
    yield "the page before it", f"{INBOX}?before={cursor}"
    yield "the badge", f"{INBOX}badge/"


def _taken(name: str, client: Client, address: str) -> Taken:
    client.get(address)
    spent = []
    for _ in range(TURNS):
        begun = time.perf_counter()
        assert client.get(address).status_code == 200
        spent.append((time.perf_counter() - begun) * 1000)
    with CaptureQueriesContext(connection) as queries:
        client.get(address)
    return Taken(name, len(queries), spent)
