"""A run with two effects that are undone, played through crashes, lost answers and lost messages: the books agree."""

import os
from typing import Any

import pytest

from durableflows import succeed
from durableflows.core import registry
from durableflows.testing import Report, faulttest
from durableflows.testing.faults import Strike
from tests.support.trips import Agency, trip_workflow

SCHEDULES = int(os.environ.get("UNDO_SCHEDULES", "25"))
"""How many of each are played; UNDO_SCHEDULES=400 plays more."""

PROVIDERS: dict[str, dict[str, Any]] = {
    "keys": {},
    "lookup only": {"key_window": None, "resend_when_absent": True},
    "neither": {"key_window": None, "lookup": None},
}


def played(agency: Agency, *, replay: str = "", schedules: int = SCHEDULES, **options: Any) -> Report:
    with registry.isolated():
        workflow = trip_workflow(agency, **options)
        return faulttest(workflow, {}, schedules=schedules, replay=replay, failures=1)


@pytest.mark.django_db
@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_what_a_step_compensates_is_undone_once_whatever_happens(provider: dict[str, Any]):
    report = played(Agency(), **provider)

    assert report.holds, report
    assert report.played == SCHEDULES


@pytest.mark.django_db
def test_what_is_cancelled_at_any_moment_is_undone_once_whatever_happens():
    report = played(Agency(end=succeed()), cleanup=True)

    assert report.holds, report
    assert report.played == SCHEDULES


@pytest.mark.django_db
@pytest.mark.parametrize("boundary", ["undo-before-commit", "undo-before-send"])
def test_a_death_where_an_undo_begins_is_played(boundary: str):
    report = played(Agency(), replay=f"{Strike.CRASH}@{boundary}#1", schedules=1)

    assert report.holds, report
    assert dict(report.standings) == {"ok": 1}
