"""An inbox with thousands of open requests, and what its pages take: for `python -m tests.measure_inbox`."""

from collections.abc import Iterator
from datetime import timedelta

from django.contrib.auth.models import Permission, User
from django.test import Client

from durableflows import Money, api
from durableflows.models import ApprovalRequest, StepRun
from durableflows.reading.window import EPOCH
from durableflows.runner import run_step
from tests.support.bonus import PERMISSION, declare
from tests.support.many import copy_request
from tests.support.measured_pages import Taken, a_database, look_at

INBOX = "/durableflows/inbox/"
MOST_MILLISECONDS, TURNS = 300.0, 7


def measured(count: int) -> Iterator[Taken]:
    """Make a database with so many open requests, and look at each page of the inbox as their approver."""
    with a_database():
        client = _crowd(count)
        assert ApprovalRequest.objects.filter(state="OPEN").count() == count
        yield from look_at(_pages(), client, turns=TURNS, most_milliseconds=MOST_MILLISECONDS)


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
    yield "a decision", f"{INBOX}{middle.pk}/"
