"""What one more answer makes of an effect's state: the whole table, and what holds for every row of it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durableflows.core.fold import Fold, fold
from durableflows.core.outcomes import NEGATIVE, AnswerKind
from durableflows.core.states import EFFECT_MOVES, EffectState

S, A = EffectState, AnswerKind
BOOLS = (False, True)
NAMES = ("is_holder", "doubted", "run_ended", "same_receipt")
FLAGS = [dict(zip(NAMES, bits, strict=True)) for bits in itertools.product(BOOLS, repeat=4)]
LOST = {A.UNKNOWN, A.IN_USE, A.ALREADY}


def folded(state: EffectState, answer: AnswerKind, **flags: bool) -> Fold:
    given_ = {"is_holder": True, "doubted": False, "run_ended": False, "same_receipt": False, **flags}
    return fold(state, answer, **given_)


@pytest.mark.parametrize(
    ("answer", "doubted", "wanted"),
    [
        (A.RECEIPT, False, Fold("confirm", closes=True)),
        (A.RECEIPT, True, Fold("confirm", closes=False)),
        (A.ACCEPTED, False, Fold("accept", closes=True)),
        (A.ACCEPTED, True, Fold("accept", closes=False)),
        (A.NOT_SENT, False, Fold("give_back", closes=True)),
        (A.NOT_DONE, False, Fold("give_back", closes=True)),
        (A.NEEDS_HUMAN, False, Fold("give_back", closes=True)),
        (A.CREDENTIALS, False, Fold("give_back", closes=True)),
        (A.CONFLICT, False, Fold("give_back", closes=True)),
        (A.REJECTED, False, Fold("reject", closes=True)),
        (A.NOT_SENT, True, Fold("doubt")),
        (A.NOT_DONE, True, Fold("doubt")),
        (A.NEEDS_HUMAN, True, Fold("doubt")),
        (A.CREDENTIALS, True, Fold("doubt")),
        (A.CONFLICT, True, Fold("doubt")),
        (A.REJECTED, True, Fold("doubt")),
        (A.UNKNOWN, False, Fold("doubt")),
        (A.UNKNOWN, True, Fold("doubt")),
        (A.IN_USE, False, Fold("doubt")),
        (A.ALREADY, False, Fold("doubt")),
        (A.ALREADY, True, Fold("doubt")),
        (A.IN_USE, True, Fold("doubt")),
    ],
)
def test_the_holder_s_answer_about_a_dispatched_row(answer: AnswerKind, doubted: bool, wanted: Fold):
    """Protocol, rule 7: a negative speaks for its own send only."""
    assert folded(S.DISPATCHED, answer, doubted=doubted) == wanted


@pytest.mark.parametrize("answer", sorted(NEGATIVE | LOST))
@pytest.mark.parametrize("state", list(EffectState))
def test_a_fenced_worker_s_no_or_doubt_changes_nothing(state: EffectState, answer: AnswerKind):
    """Protocol, rule 7."""
    for flags in FLAGS:
        assert fold(state, answer, **{**flags, "is_holder": False}) == Fold()


@pytest.mark.parametrize("answer", sorted(NEGATIVE | LOST))
@pytest.mark.parametrize("state", [state for state in EffectState if state is not S.DISPATCHED])
def test_doubt_and_refusals_never_overwrite_what_is_known(state: EffectState, answer: AnswerKind):
    """Protocol, rule 8."""
    for flags in FLAGS:
        assert fold(state, answer, **flags) == Fold()


@pytest.mark.parametrize(
    ("state", "verb", "alert"),
    [
        (S.DISPATCHED, "confirm", ""),
        (S.UNKNOWN, "confirm", ""),
        (S.ACCEPTED, "confirm", ""),
        (S.PLANNED, "confirm", "PLANNED"),
        (S.ABSENT, "confirm", "ABSENT"),
        (S.REJECTED, "confirm", "REJECTED"),
        (S.CONFIRMED, None, "second receipt"),
        (S.UNDOING, None, "UNDOING"),
        (S.UNDONE, None, "UNDONE"),
        (S.UNDO_FAILED, None, "UNDO_FAILED"),
        (S.REVERSED, None, "REVERSED"),
    ],
)
def test_a_receipt_is_recorded_whoever_brings_it(state: EffectState, verb: str | None, alert: str):
    """Protocol, rule 8."""
    for is_holder in BOOLS:
        change = folded(state, A.RECEIPT, is_holder=is_holder)
        assert change.verb == verb
        assert alert in change.alert
        assert bool(change.alert) is bool(alert)


@pytest.mark.parametrize("state", [S.CONFIRMED, S.UNDOING, S.UNDONE, S.UNDO_FAILED])
def test_the_receipt_that_is_known_surprises_nobody_when_it_comes_again(state: EffectState):
    """A copy of the answer that comes while the effect is undone, or after: what was undone is this very act."""
    for flags in [flags for flags in FLAGS if flags["same_receipt"]]:
        change = fold(state, A.RECEIPT, **flags)
        assert (change.verb, change.alert) == (None, "")


def test_every_state_has_its_row_in_the_table_of_receipts():
    """The table above is whole."""
    marks = test_a_receipt_is_recorded_whoever_brings_it.pytestmark
    assert {row[0] for row in marks[0].args[1]} == set(EffectState)


@pytest.mark.parametrize(
    ("state", "verb", "is_alert"),
    [
        (S.DISPATCHED, "accept", False),
        (S.UNKNOWN, "accept", False),
        (S.ACCEPTED, None, False),
        (S.CONFIRMED, None, False),
        (S.PLANNED, None, True),
        (S.ABSENT, None, True),
        (S.REJECTED, None, True),
    ],
)
def test_accepted_is_the_provider_s_word_whoever_brings_it(state: EffectState, verb: str | None, is_alert: bool):
    """P2; protocol, rule 8."""
    for is_holder in BOOLS:
        change = folded(state, A.ACCEPTED, is_holder=is_holder)
        assert (change.verb, bool(change.alert)) == (verb, is_alert)


def test_the_same_receipt_again_is_no_surprise_and_another_one_is():
    """Protocol, rule 8."""
    assert folded(S.CONFIRMED, A.RECEIPT, same_receipt=True).alert == ""
    assert "acted twice" in folded(S.CONFIRMED, A.RECEIPT, same_receipt=False).alert


def test_a_receipt_after_the_end_is_an_alert():
    """Protocol, rule 8."""
    assert folded(S.UNKNOWN, A.RECEIPT, run_ended=True).alert
    assert folded(S.UNKNOWN, A.RECEIPT, run_ended=False).alert == ""


@given(
    st.sampled_from(EffectState),
    st.sampled_from(AnswerKind),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_whatever_comes_the_move_is_legal_and_nothing_is_forgotten(state, answer, holder, doubted, ended, same):
    """Rules 3, 7 and 8 over the whole space."""
    change = fold(state, answer, is_holder=holder, doubted=doubted, run_ended=ended, same_receipt=same)

    target = state
    if change.verb is not None:
        sources, target = EFFECT_MOVES[change.verb]
        assert state in sources
    if change.closes:
        assert holder
        assert not doubted, "an earlier send is unexplained: the row stays open"
    if doubted and state in (S.DISPATCHED, S.UNKNOWN):
        assert target not in (S.PLANNED, S.REJECTED, S.ABSENT), "doubt was forgotten"
    if state is S.CONFIRMED:
        assert target is S.CONFIRMED
    if answer is A.RECEIPT and state in (S.DISPATCHED, S.UNKNOWN, S.ACCEPTED, S.PLANNED, S.ABSENT, S.REJECTED):
        assert target is S.CONFIRMED


@given(st.lists(st.tuples(st.sampled_from(sorted(NEGATIVE | LOST)), st.booleans()), max_size=8))
def test_once_a_send_was_lost_only_a_receipt_or_the_provider_s_word_ends_the_doubt(answers):
    """P5: a row's state is a fold over all its sends; each answer comes after a new dispatch of an UNKNOWN row."""
    state, doubted = S.UNKNOWN, True
    for answer, is_holder in answers:
        state = S.DISPATCHED
        change = fold(state, answer, is_holder=is_holder, doubted=doubted, run_ended=False, same_receipt=False)
        state = EFFECT_MOVES[change.verb][1] if change.verb else state
        assert state in (S.DISPATCHED, S.UNKNOWN)
        assert not change.closes
