"""What one more answer makes of an effect's state. A row's state is a fold over all its sends (P5).

Source: protocol, rules 3, 7 and 8; each branch below is a row of its section 4.
"""

from dataclasses import dataclass

from durableflows.core.outcomes import NEGATIVE, AnswerKind
from durableflows.core.states import EffectState

_SURPRISED = frozenset({EffectState.PLANNED, EffectState.ABSENT, EffectState.REJECTED})


@dataclass(frozen=True, slots=True)
class Fold:
    """`verb`: the move to make, if any. `closes`: no send of the row can act any more.

    `alert`: it contradicts what was known, and stays loud until a person has looked; `notice`: told to a person too.
    """

    verb: str | None = None
    closes: bool = False
    alert: str = ""
    notice: str = ""


def fold(
    state: EffectState, answer: AnswerKind, *, is_holder: bool, doubted: bool, run_ended: bool, same_receipt: bool
) -> Fold:
    """Merge an answer into the row.

    is_holder     the answer comes from the step's current lease, about the row's last send
    doubted       an earlier send of this row is unexplained
    same_receipt  the row has a receipt already, and it is this one
    """
    if answer is AnswerKind.RECEIPT:
        return _receipt(state, is_holder=is_holder, doubted=doubted, run_ended=run_ended, same_receipt=same_receipt)
    if answer is AnswerKind.ACCEPTED:
        return _accepted(state, closes=is_holder and not doubted)
    if not is_holder or state is not EffectState.DISPATCHED:
        # A worker without the lease says nothing about sends begun after its own; doubt never overwrites a receipt.
        return Fold()
    if answer in NEGATIVE:
        if doubted:
            return Fold("doubt")
        return Fold("reject" if answer is AnswerKind.REJECTED else "give_back", closes=True)
    return Fold("doubt")


def _accepted(state: EffectState, *, closes: bool) -> Fold:
    """The provider's word that a request came through; it counts whoever brings it, as a receipt does (rule 8)."""
    if state in (EffectState.DISPATCHED, EffectState.UNKNOWN):
        return Fold("accept", closes=closes)
    if state in _SURPRISED:
        return Fold(None, alert=f"the provider accepted an effect that was {state}: it may happen yet")
    return Fold()


def _receipt(state: EffectState, *, is_holder: bool, doubted: bool, run_ended: bool, same_receipt: bool) -> Fold:
    closes = is_holder and not doubted
    if state is EffectState.CONFIRMED:
        alert = "" if same_receipt else "a second receipt: the provider may have acted twice"
        return Fold(None, closes=closes, alert=alert)
    if state in _SURPRISED:
        return Fold("confirm", closes=closes, alert=f"a receipt came for an effect that was {state}: it did happen")
    if state in (EffectState.DISPATCHED, EffectState.UNKNOWN, EffectState.ACCEPTED):
        alert = "a receipt came after the run had ended" if run_ended else ""
        return Fold("confirm", closes=closes, alert=alert)
    if same_receipt and state is not EffectState.REVERSED:  # it is being undone, or was: this is what was undone
        return Fold(None, closes=closes)
    return Fold(None, alert=f"a receipt came for an effect that is {state}")
