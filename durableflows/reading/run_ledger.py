"""The ledger of one run, as its page shows it: each effect with what was sent, looked up and told. Reads only."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.urls import reverse

from durableflows.core.money import Money
from durableflows.core.operate import money_in, sums
from durableflows.core.payload import JSON
from durableflows.core.states import EFFECT_OPEN, EffectState
from durableflows.models import EffectSend, ProviderEvent, SideEffect, WorkflowRun
from durableflows.reading.run_page import ROWS_SHOWN, Context, shown
from durableflows.transactions import database

SAYABLE = (EffectState.UNKNOWN, EffectState.ACCEPTED, EffectState.ABSENT, EffectState.UNDO_FAILED)
"""What a person may say something about."""
SUMS: Mapping[str, Collection[EffectState]] = {
    "Happened": (EffectState.CONFIRMED, EffectState.UNDO_FAILED),
    "Undone": (EffectState.UNDONE,),
    "Taken back": (EffectState.REVERSED,),
    "Unknown or under way": EFFECT_OPEN,
}
"""What is summed up: the words, and the states."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the ledger, with what was sent and looked up, and what the provider told on its own."""

    row: SideEffect
    arguments: JSON
    receipt: JSON
    sends: Sequence[EffectSend]
    told: Sequence[ProviderEvent]
    amounts: Sequence[Money]
    address: str


def ledger(run: WorkflowRun, *, sees: bool, may_say: bool) -> Context:
    """The newest rows of the ledger in order, and the sums of money that they are about, by what is known.

    sees      may the person see values?; may_say: and say what happened?
    """
    effects = list(SideEffect.objects.using(database()).filter(run=run).order_by("-id")[:ROWS_SHOWN])[::-1]
    ids = [effect.pk for effect in effects]
    sends: dict[UUID, list[EffectSend]] = defaultdict(list)
    for send in list(EffectSend.objects.using(database()).filter(effect__in=ids).order_by("-id")[:ROWS_SHOWN])[::-1]:
        sends[send.effect_id].append(send)
    told: dict[UUID | None, list[ProviderEvent]] = defaultdict(list)
    events = ProviderEvent.objects.using(database()).filter(effect__in=ids).order_by("-id")
    for event in list(events[:ROWS_SHOWN])[::-1]:
        told[event.effect_id].append(event)
    entries = [_entry(row, sends[row.pk], told[row.pk], sees=sees, may_say=may_say) for row in effects]
    return {"entries": entries, "money": list(_money(run)) if sees else [], "rows_shown": ROWS_SHOWN}


def _entry(
    row: SideEffect, sends: Sequence[EffectSend], told: Sequence[ProviderEvent], *, sees: bool, may_say: bool
) -> Entry:
    amounts = sums(money_in(row.arguments)) if sees else ()
    is_open = row.state in SAYABLE or bool(row.contradiction)
    address = reverse("durableflows:resolve", args=[row.run_id, row.pk]) if may_say and is_open else ""
    return Entry(row, shown(row.arguments, sees=sees), shown(row.receipt, sees=sees), sends, told, amounts, address)


def _money(run: WorkflowRun) -> Iterator[tuple[str, tuple[Money, ...]]]:
    """Of all effects, also those that are not shown; an undo is counted with the effect that it undoes."""
    acts = SideEffect.objects.using(database()).filter(run=run, undoes__isnull=True).order_by()
    rows = list(acts.values_list("state", "arguments"))
    for words, states in SUMS.items():
        amounts = sums(amount for state, arguments in rows if state in states for amount in money_in(arguments))
        if amounts:
            yield words, amounts
