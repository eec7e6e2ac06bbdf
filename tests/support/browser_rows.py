"""Rows for browser tests, made by `manage.py shell` on the tests' own database (`browser_shop.Shop.make_rows`).

Refunds are driven by the real engine with played time (`durableflows.testing`) against the real payment sandbox; the
grid's settings are those of its site with `tests.browser_app`, whose workflows have what a refund has not. What a test
needs to find its way lies in a file afterwards: numbers of orders, ids of requests and runs.
"""

import json
import os
import re
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Permission, User
from django.utils import timezone

from customer_ops import services
from customer_ops.gateways.payments import PaymentsClient
from customer_ops.management.commands.seed_demo import PEOPLE
from customer_ops.models import Charge, Customer, Order, RefundRequest, Ticket
from customer_ops.sandbox.control import SandboxControl
from durableflows import Money, api
from durableflows.core import registry
from durableflows.core.keys import new_token
from durableflows.housekeeping import JOBS
from durableflows.models import ApprovalRequest, Breaker, BreakerChange, Worker
from durableflows.testing import FakeClock, World, open_request, virtual
from tests.support.desk import run_id_of
from tests.support.payments import call

STORY_ORDERS = 80
LEAVERS = tuple(f"leaver-{number}" for number in range(10))
CROWD = {
    "agent": "agent",
    "manager": "manager",
    "second": "manager",
    "admin": "admin",
    **dict.fromkeys(LEAVERS, "manager"),
}
"""Who there is, and like whom of the demo."""

HOSTILE_NUMBER = "<img src=x onerror=hostile=1>"
HOSTILE = (
    '</script><script>window.hostile=1</script>"\'><img src=x onerror="window.hostile=2"><svg/onload=window.hostile=3>'
    '{{ 7|add:7 }}{% now "Y" %} javascript:window.hostile=4 \u202edekcart END'
)


def make(kind: str) -> None:
    """Make the rows of a kind, "stories" or "grid", and leave what was made in rows.json of the data folder."""
    people = make_people(os.environ["BROWSER_PASSWORD"])
    made = make_stories() if kind == "stories" else Grid(people).make()
    Path(settings.CUSTOMER_OPS_DATA, "rows.json").write_text(json.dumps(made), encoding="utf-8")


def make_people(password: str) -> dict[str, User]:
    """People who may what those of the demo may. One hash for all: hashing is what takes time."""
    hashed = make_password(password)
    for name, like in CROWD.items():
        is_staff, rights = PEOPLE.get(like, (True, ()))
        person = User.objects.create(
            username=name,
            password=hashed,
            is_staff=is_staff,
            is_superuser=like not in PEOPLE,
            email=f"{name}@desk.test",
        )
        person.user_permissions.set(
            [Permission.objects.get(content_type__app_label=app, codename=codename) for app, codename in rights]
        )
    return {name: User.objects.get(username=name) for name in CROWD}


def make_stories() -> dict[str, Any]:
    """Orders that nobody has touched, one customer each."""
    numbers = [f"S-{index + 1}" for index in range(STORY_ORDERS)]
    charges = {n: make_charge(n, customer=f"Customer of {n}").provider_id for n in numbers}
    return {"charges": charges, "leavers": LEAVERS}


def make_charge(number: str, *, customer: str, dollars: int = 900) -> Charge:
    """An order with one charge, here and at the provider."""
    amount, key = Money(dollars * 100, "USD"), f"charge-{uuid.uuid4()}"
    receipt = _provider().create_charge(key=key, amount=amount)
    email = f"{re.sub('[^a-z0-9]+', '.', customer.lower())[:40].strip('.')}@example.com"
    owner, _ = Customer.objects.get_or_create(email=email, defaults={"name": customer})
    order = Order(number=number, customer=owner)
    order.total = amount
    order.save()
    charge = Charge(order=order, provider_id=receipt.id)
    charge.amount = amount
    charge.save()
    return charge


class Grid:
    """Refunds in every state, hostile and endless words, open questions, and the ids of their pages."""

    world: World

    def __init__(self, people: dict[str, User]) -> None:
        self.agent, self.manager = people["agent"], people["manager"]

    def make(self) -> dict[str, Any]:
        """Make all of it."""
        for index in range(22):  # more than the list has on a page
            make_charge(f"R-{1001 + index}", customer="Ines Silva", dollars=90 + 47 * index)
        make_workers()
        make_providers()
        with virtual(FakeClock(timezone.now())) as self.world:
            waiting = self.ask(make_charge("R-2002", customer="Bram de Vries"), 600, "The chair came without its legs.")
            failed = self._failed(make_charge("R-3001", customer="Eva Lind").order)
            return {
                "waiting": _places(waiting),
                "decided": _places(self._decided()),
                "found": _places(self._found()),
                "hostile": self._hostile(),
                "endless": _places(self._endless()),
                "many": _places(self._each_state()),  # time that goes on ends doubt
                "acts": {"redrive": str(failed.run_id), **self._to_act_on()},
                "stories": self._for_stories(),
            }

    def ask(self, charge: Charge, dollars: int, reason: str) -> RefundRequest:
        """Ask for a refund, as the order's page does, and let the run go as far as it goes."""
        amount = Money(dollars * 100, "USD")
        request = services.request_refund(charge.pk, amount, reason, by=self.agent, form_token=uuid.uuid4())
        self.world.run_until_idle()
        return request

    def answer(self, request: RefundRequest, verdict: str, comment: str = "") -> None:
        """Answer as the manager, and let the run go as far as it goes without a lookup."""
        asked = open_request(run_id_of(request))
        api.answer(asked.pk, verdict, by=self.manager, facts_digest=asked.facts_digest, comment=comment)
        self.world.run_until_idle()

    def _each_state(self) -> RefundRequest:
        charge = make_charge("R-2001", customer="Ada Brown", dollars=4000)
        self.ask(charge, 80, "One of two lamps arrived with a broken shade.")
        self.answer(self.ask(charge, 700, "The table has a scratch."), "reject", "The photo shows no scratch.")
        api.cancel(run_id_of(self.ask(charge, 600, "Sent back last week.")), reason="she keeps it", by=self.agent)
        self.world.run_until_idle()
        self._failed(charge.order)
        self.world.run_through()
        waiting = self.ask(charge, 900, "The wardrobe came in two halves.")
        self._fault("cut_after", charge)  # the answer is lost, and nobody has looked it up yet
        self.answer(self.ask(charge, 650, "The mirror broke on its way."), "approve")
        return waiting

    def _to_act_on(self) -> dict[str, str]:
        """A run for each verb that is done to one in a browser, by the verb. No time goes on after this."""
        made = {verb: self._waiting(verb) for verb in ("cancel", "pause", "extend", "abandon", "edit", "resume")}
        for verb in ("edit", "resume"):
            api.pause(made[verb], by=None, reason="somebody looks at it")
        for verb, fault, dollars in (("retry", "rate_limited", 80), ("resolve", "cut_after", 80)):
            charge = make_charge(f"R-3-{verb}", customer="Eva Lind")
            self._fault(fault, charge)
            made[verb] = str(self.ask(charge, dollars, "It came broken.").run_id)
        return {**made, "migrate": self._begun("gift"), "compensate": self._begun("voucher")}

    def _for_stories(self) -> dict[str, str]:
        """A run that can be moved to a newer version, with its open question, one that failed and can be undone, and
        two to be chosen together.
        """
        gift, *chosen = (self._begun("gift") for _ in range(3))
        made = {"migrate": gift, "asked": str(open_request(UUID(gift)).pk), "compensate": self._begun("voucher")}
        return {**made, "one": chosen[0], "other": chosen[1]}

    def _begun(self, workflow: str) -> str:
        """A run of a workflow that only the tests' own app has (`tests.browser_app`), as far as it goes."""
        state = {"customer": "Eva Lind", "amount": Money(4000, "USD")}
        run = api.start(workflow, state, key=f"{workflow}-{uuid.uuid4()}", by=self.agent, version=1)
        self.world.run_until_idle()
        return str(run.pk)

    def _waiting(self, verb: str) -> str:
        return str(self.ask(make_charge(f"R-3-{verb}", customer="Eva Lind"), 600, "It came broken.").run_id)

    def _failed(self, order: Order) -> RefundRequest:
        """The provider refuses: what we think is left, somebody gave back there by hand."""
        gone = make_charge(f"{order.number}-2", customer="Somebody else", dollars=300)
        Charge.objects.filter(pk=gone.pk).update(order=order)
        _provider().refund(call(f"by-hand-{gone.pk}"), charge_id=gone.provider_id, amount=Money(29_000, "USD"))
        return self.ask(Charge.objects.get(pk=gone.pk), 120, "Charged twice.")

    def _decided(self) -> RefundRequest:
        request = self.ask(make_charge("R-2003", customer="Chiyo Tanaka"), 600, "The shelf is too short.")
        self.answer(request, "approve", "Measured it.")
        return request

    def _found(self) -> RefundRequest:
        """The answer was lost, and the payment was found: what the picture of README shows."""
        charge = make_charge("R-2004", customer="Ada Brown")
        self._fault("cut_after", charge)
        request = self.ask(charge, 600, "The mirror broke on its way.")
        self.answer(request, "approve", "Seen the photo.")
        self.world.run_through()
        return request

    def _hostile(self) -> dict[str, str]:
        """Hostile words wherever others write: name, number, reason, comment, ticket, the provider's own words."""
        charge = make_charge(HOSTILE_NUMBER, customer=HOSTILE[:200], dollars=4000)
        Ticket.objects.create(customer=charge.order.customer, subject=HOSTILE[:200], body=HOSTILE)
        self.answer(self.ask(charge, 600, HOSTILE), "reject", HOSTILE)
        self._fault("pending", charge, then="failed", failure_reason=HOSTILE)
        answered = self.ask(charge, 700, HOSTILE)
        self.answer(answered, "approve", HOSTILE)
        self.world.run_through()
        return {**_places(self.ask(charge, 800, HOSTILE)), "run": str(answered.run_id)}

    def _endless(self) -> RefundRequest:
        """Words without an end, as long as the fields take."""
        charge = make_charge("N" * 30, customer="W" * 200, dollars=9_999_999)
        self.answer(self.ask(charge, 600, "x" * 500), "reject", "y" * 4000)
        return self.ask(charge, 5_000_000, "Donaudampfschifffahrtsgesellschaftskapitaen" * 11)

    def _fault(self, kind: str, charge: Charge, **options: Any) -> None:
        SandboxControl(settings.PAYMENTS_URL).fault(kind, path="/v1/refunds", charge=charge.provider_id, **options)


def make_workers() -> None:
    """One that lives and stays so, though one of its jobs fails, one that was told to end, and one with a name that is
    too long, silent for long.
    """
    now, knows = timezone.now(), [list(pair) for pair in registry.known()]
    later = {"heartbeat_at": now + timedelta(days=1), "swept_at": now + timedelta(days=1)}
    jobs = {name: {"at": later["swept_at"].isoformat()} for name in JOBS}
    late, *_ = JOBS
    jobs[late] = {"at": (now - timedelta(hours=2)).isoformat(), "error": f"ProgrammingError: {HOSTILE}"[:300]}
    given: list[dict[str, Any]] = [
        {"name": "celery@desk-1", "host": "desk-1.example.com", "queues": ["celery", "slow"], **later, "jobs": jobs},
        {"name": HOSTILE_NUMBER, "host": HOSTILE[:200], "queues": ["celery"], **later, "draining_at": now},
        {"name": "W" * 200, "host": "h" * 200, "queues": ["q" * 120], "heartbeat_at": now - timedelta(hours=2)},
    ]
    for one in given:
        Worker.objects.create(boot_id=new_token(), pid=4711, knows=knows, started_at=now - timedelta(hours=3), **one)


def make_providers() -> None:
    """One that is left alone, one that was paused in words that are none, and one whose name is too long."""
    now = timezone.now()
    alone = {"opened_at": now, "open_until": now + timedelta(days=1), "failures": 5}
    for name, state, by, reason, more in (
        ("maps", "open", "", "after 5 failures in a row, the last a ReadTimeout", alone),
        (HOSTILE_NUMBER, "paused", "manager", HOSTILE, {"opened_at": now}),
        ("p" * 100, "paused", "m" * 150, "Donaudampfschifffahrtsgesellschaftskapitaen" * 11, {"opened_at": now}),
    ):
        Breaker.objects.create(provider=name, state=state, changed_at=now, changed_by=by, reason=reason, **more)
        BreakerChange.objects.create(provider=name, state=state, at=now, actor_name=by, reason=reason)


def _places(request: RefundRequest) -> dict[str, str]:
    asked = ApprovalRequest.objects.get(run_id=run_id_of(request))
    ids = {"asked": str(asked.pk), "digest": asked.facts_digest, "run": str(request.run_id)}
    return {"order": request.charge.order.number, **ids}


def _provider() -> PaymentsClient:
    return PaymentsClient(settings.PAYMENTS_URL, settings.PAYMENTS_KEY)
