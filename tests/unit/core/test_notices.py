"""When a notice is tried again, how long that waits, and when it is given up."""

from datetime import timedelta

import pytest

from durableflows.core.notices import (
    ASKS,
    AT_MOST_ONCE,
    GIVE_UP_AFTER,
    WHILE_OPEN,
    Fate,
    NoticeKind,
    fate,
    pause_seconds,
)

NEW = timedelta(minutes=1)


@pytest.mark.parametrize("kind", sorted(set(NoticeKind) - AT_MOST_ONCE))
def test_what_may_have_been_told_is_told_again(kind: NoticeKind):
    assert fate(kind, is_permanent=False, in_doubt=True, age=NEW) is Fate.AGAIN


def test_a_reminder_that_may_have_been_given_is_not_given_again():
    assert fate(NoticeKind.REMINDER, is_permanent=False, in_doubt=True, age=NEW) is Fate.DROPPED
    assert fate(NoticeKind.REMINDER, is_permanent=False, in_doubt=False, age=NEW) is Fate.AGAIN


@pytest.mark.parametrize("kind", list(NoticeKind))
def test_what_cannot_work_or_is_too_old_is_given_up(kind: NoticeKind):
    assert fate(kind, is_permanent=True, in_doubt=False, age=NEW) is Fate.DROPPED
    assert fate(kind, is_permanent=False, in_doubt=False, age=GIVE_UP_AFTER) is Fate.DROPPED


def test_pauses_double_up_to_an_hour():
    assert [pause_seconds(attempts) for attempts in (0, 1, 2, 3, 7, 8, 9, 1000)] == [
        *(30, 30, 60, 120, 1920, 3600, 3600, 3600),
    ]


def test_what_asks_for_a_decision_is_told_only_while_it_can_be_given():
    assert ASKS < WHILE_OPEN
    assert AT_MOST_ONCE <= ASKS
