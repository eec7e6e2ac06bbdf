"""Somebody who decides what is in doubt by the providers' own books, and a look at whether each doubt was explained."""

import contextlib
from collections import Counter
from typing import Any

from django.contrib.auth.models import User

from customer_ops.gateways.payment_amounts import from_provider
from customer_ops.sandbox.control import BooksView, RunningSandbox
from durableflows import TooLate, api
from durableflows.core.outcomes import NEGATIVE, AnswerKind
from durableflows.core.states import EffectState, RunState
from durableflows.models import EffectSend, SideEffect, WorkflowRun
from tests.support.mail_office import Office

CLEAR = {*map(str, NEGATIVE), str(AnswerKind.RECEIPT), str(AnswerKind.ACCEPTED)}
"""Answers to a send that leave nothing to explain."""


class Operator:
    """A person who may operate runs, with the books open on the desk."""

    def __init__(self, user: User, sandbox: RunningSandbox, office: Office) -> None:
        self._user, self._sandbox, self._office = user, sandbox, office
        self.verdicts: Counter[str] = Counter()

    def decide(self) -> None:
        """Say of each effect that a person is asked about whether it happened, and let parked runs go on."""
        asked = SideEffect.objects.filter(
            state__in=[EffectState.UNKNOWN, EffectState.ABSENT],
            verdict="",
            step__needs_person=True,
            run__ended_at__isnull=True,
        )
        rows = list(asked)
        books = self._sandbox.books() if rows else None
        for row in rows:
            assert books is not None
            self._decide(row, self._receipt(row, books))
        for run in WorkflowRun.objects.filter(state=RunState.PARKED):
            with contextlib.suppress(TooLate):
                api.retry(run.pk, by=self._user, reason="its workers were killed")
                self.verdicts["retry"] += 1

    def _decide(self, row: SideEffect, receipt: dict[str, Any] | None) -> None:
        verdict = "did_not_happen" if receipt is None else "happened"
        with contextlib.suppress(TooLate):  # a request may still arrive: later
            api.resolve_effect(
                row.pk,
                verdict,
                by=self._user,
                reason="looked into the books",
                row_version=row.row_version,
                receipt=receipt,
            )
            self.verdicts[f"{row.effect} {verdict}"] += 1

    def _receipt(self, row: SideEffect, books: BooksView) -> dict[str, Any] | None:
        """What the provider would have said; None when it did nothing."""
        if row.effect == "mail.send":
            found = [one for one in self._office.store.letters() if one.message_id.startswith(f"<{row.key}@")]
            return next(({"message_id": one.message_id} for one in found if not one.refusal), None)
        if row.effect == "tickets.create":
            return next(({"id": one["id"]} for one in books.tickets if one["external_id"] == row.key), None)
        refunds = (one for one in books.refunds if one["metadata"].get("durableflows_key") == row.key)
        return next((_refund(one) for one in refunds), None)


def _refund(made: dict[str, Any]) -> dict[str, Any]:
    amount = from_provider(made["amount"], made["currency"])
    money = {"amount_minor": amount.amount_minor, "currency": amount.currency}
    return {"id": made["id"], "status": made["status"], "charge_id": made["charge"], "amount": money}


def sends_of(effect: str) -> int:
    """How often our workers sent, or were about to."""
    return EffectSend.objects.filter(effect__effect=effect, kind="send").count()


def unexplained() -> list[str]:
    """Effects of which a send had no clear answer, and nothing later on record says what became of it."""
    return [str(row) for row in SideEffect.objects.all() if not _is_explained(row)]


def _is_explained(row: SideEffect) -> bool:
    sends = list(EffectSend.objects.filter(effect=row).order_by("started_at"))
    doubtful = [one for one in sends if one.kind == "send" and one.outcome not in CLEAR]
    if not doubtful or row.verdict:
        return True
    later = [one for one in sends if one.started_at > doubtful[-1].started_at]
    by_answer = any(one.kind == "send" and one.outcome in CLEAR for one in later)
    by_lookup = any(one.kind == "lookup" and one.outcome in ("found", "not found") for one in later)
    # The answer of an earlier send may be late, and is the receipt of them all.
    return by_answer or by_lookup or row.state == EffectState.CONFIRMED
