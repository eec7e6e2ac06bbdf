"""`faulttest` can fail: with one guard of the engine taken away it finds a broken promise within so many schedules.

Each guard is replaced here by what a hurried change would leave; nothing else of the engine is touched.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from durableflows import claims, context, endings, ledger, ledger_answers, ledger_facts, lookups
from durableflows.core import effects, registry
from durableflows.core import reconcile as core_reconcile
from durableflows.core.states import EffectState
from durableflows.services import reconcile, sweeps
from durableflows.testing import Report, faulttest
from tests.support.flows import PayReceipt, Provider, pay_effect, pay_workflow

pytestmark = pytest.mark.django_db

SCHEDULES = 100
KEYS = timedelta(hours=24)


class Without:
    """A module of which one name is replaced for one user of it only."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self._module, self._replaced = module, replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced[name] if name in self._replaced else getattr(self._module, name)


def nothing(*_: object, **__: object) -> None:
    """Checks nothing."""


def key_of_the_attempt(patch: pytest.MonkeyPatch) -> None:
    dispatched = ledger._dispatch

    def dispatch_under_a_new_key(run: Any, step: Any, row: Any, *rest: Any, **more: Any) -> Any:
        row.key = f"{row.key[:60]}{row.send_count + 1}"
        if not row._state.adding:
            row.store("key")
        return dispatched(run, step, row, *rest, **more)

    patch.setattr(ledger, "_dispatch", dispatch_under_a_new_key)


def sent_again_in_doubt(patch: pytest.MonkeyPatch) -> None:
    for module in (ledger, claims, core_reconcile):
        patch.setattr(module, "may_resend", lambda *_: True)


def settled_without_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claims, "ledger", Without(ledger, check_lease=nothing))


def reserved_without_lease(patch: pytest.MonkeyPatch) -> None:
    checked = ledger.check_lease
    patch.setattr(ledger, "check_lease", nothing)
    patch.setattr(claims, "ledger", Without(ledger, check_lease=checked))


def cancel_that_does_not_stop(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "_check_halt", nothing)


def cancel_that_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    blind = Without(ledger_facts, has_open_sends=lambda *_: False, with_open_effects=lambda *_: set())
    patch.setattr(endings, "ledger_facts", blind)


def receipt_not_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(context.RunContext, "_record", lambda *_: EffectState.CONFIRMED)


def doubt_that_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger_answers, "doubt_dispatched", nothing)


def late_request_that_leaves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(effects.EffectCall, "check", nothing)


def lookup_that_asks_too_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lookups, "_is_due", lambda row, now: row.state in lookups.LOOKED_UP)
    asked = core_reconcile.next_for

    def at_once(facts: Any, *rest: Any, **more: Any) -> Any:
        return asked(replace(facts, settles_at=None), *rest, **more)

    patch.setattr(reconcile, "next_for", at_once)


def lost_messages_that_stay_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sweeps.SWEEPS, "unsent steps", lambda now: 0)


def overdue_leases_that_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sweeps.SWEEPS, "overdue leases", lambda now: 0)


def attempts_that_cost_nothing(patch: pytest.MonkeyPatch) -> None:
    taken = claims._take

    def take_for_nothing(run: Any, *rest: Any, **more: Any) -> Any:
        claimed = taken(run, *rest, **more)
        run.attempts_count -= 1
        run.store("attempts_count")
        return claimed

    patch.setattr(claims, "_take", take_for_nothing)


@dataclass(frozen=True)
class Guard:
    """A guard that is taken away, the provider at which it is missed, and promises of which one must be named."""

    drop: Callable[[pytest.MonkeyPatch], None]
    promises: tuple[str, ...]
    provider: dict[str, Any] = field(default_factory=dict)
    schedules: int = SCHEDULES


NEITHER = {"key_window": None, "with_lookup": False}
LOOKUP = {"key_window": None, "resend_when_absent": True}

GUARDS = [
    Guard(key_of_the_attempt, ("P3",), {"key_window": KEYS}),
    Guard(sent_again_in_doubt, ("P3",), NEITHER),
    Guard(settled_without_lease, ("P1", "P2")),
    Guard(reserved_without_lease, ("P2",), schedules=500),
    Guard(cancel_that_does_not_stop, ("P6",), schedules=300),
    Guard(cancel_that_does_not_wait, ("P6", "doctor", "P1"), LOOKUP),
    Guard(receipt_not_stored, ("P4",)),
    Guard(doubt_that_is_forgotten, ("doctor", "P4", "P5", "P10"), NEITHER),
    Guard(late_request_that_leaves, ("P4",), LOOKUP),
    Guard(lookup_that_asks_too_early, ("P3", "P5"), LOOKUP),
    Guard(lost_messages_that_stay_lost, ("P10",)),
    Guard(overdue_leases_that_stay, ("P10",)),
    Guard(attempts_that_cost_nothing, ("P7",)),
]


def played(*, schedules: int = SCHEDULES, **provider: Any) -> Report:
    books = Provider()
    with registry.isolated():
        workflow = pay_workflow(books, pay_effect(books, **provider))
        pending = {"test.pay": lambda call, amount: PayReceipt(id="pay_1", status="pending")}
        return faulttest(workflow, {"amount": 5}, schedules=schedules, failures=1, pending=pending)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.drop.__name__)
def test_a_guard_that_is_missing_is_found(guard: Guard, monkeypatch: pytest.MonkeyPatch):
    guard.drop(monkeypatch)

    report = played(schedules=guard.schedules, **guard.provider)

    assert not report.holds
    assert report.failures
    named = {broken.promise for failure in report.failures for broken in failure.broken}
    assert named & set(guard.promises), report
