"""What the ledger says of effects and sends. Reads only; whoever must rely on it holds the run's lock.

Called by the claim, by ends and by the step's context.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from durableflows.core.outcomes import AnswerKind
from durableflows.core.payload import JSON
from durableflows.core.states import EFFECT_PENDING
from durableflows.models import EffectSend, SideEffect, StepRun, WorkflowRun
from durableflows.transactions import database


def effects_of(step_locked: StepRun) -> list[SideEffect]:
    """All effects of this visit."""
    return list(SideEffect.objects.using(database()).filter(step=step_locked).order_by("id"))


def with_open_effects(steps_locked: Sequence[StepRun]) -> set[UUID]:
    """Those of the steps that P15 will not let end: an effect of theirs is open."""
    if not steps_locked:
        return set()
    rows = SideEffect.objects.using(database()).filter(
        step__in=steps_locked, state__in=[str(s) for s in EFFECT_PENDING]
    )
    return set(rows.order_by().values_list("step_id", flat=True))


def has_open_sends(run_locked: WorkflowRun, now: datetime) -> bool:
    """May a request of the run still be on its way, or an outcome be unknown? (protocol, rules 3 and 10)"""
    rows = SideEffect.objects.using(database()).filter(run=run_locked)
    in_doubt = rows.filter(state__in=[str(s) for s in EFFECT_PENDING])
    return in_doubt.exists() or rows.filter(settles_at__gt=now).exists()


@dataclass(frozen=True, slots=True)
class Original:
    """An effect that is undone, as its undo sees it."""

    id: UUID
    effect: str
    operation: str
    arguments: dict[str, JSON]
    receipt: JSON


def original_of(effect_id: UUID) -> Original:
    """What an undo undoes. It is confirmed: nothing changes its arguments and its receipt any more."""
    row = SideEffect.objects.using(database()).get(pk=effect_id)
    return Original(row.pk, row.effect, row.operation, row.arguments, row.receipt)


def said_already(row: SideEffect) -> bool:
    """Was a send of it answered by "it is already so"? Then only a lookup or a person can tell by whom."""
    sends = EffectSend.objects.using(database()).filter(effect=row, kind="send", outcome=str(AnswerKind.ALREADY))
    return sends.exists()


def receipt_of(effect_id: UUID) -> JSON:
    """The stored receipt of an effect that is known to have happened; nothing ever changes it."""
    receipt: JSON = SideEffect.objects.using(database()).values_list("receipt", flat=True).get(pk=effect_id)
    return receipt
