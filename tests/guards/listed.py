"""All guards, by chapter."""

from collections.abc import Mapping

from tests.guards import (
    approvers,
    classes,
    decisions,
    doors,
    effects,
    events,
    evidence,
    leases,
    limits,
    lookups,
    messages,
    people,
    providers,
    undo,
    ways,
)
from tests.guards.values import Change, Guard

CHAPTERS: Mapping[str, tuple[Guard, ...]] = {
    "Effects": effects.GUARDS,
    "Lookups and verdicts": lookups.GUARDS,
    "What providers tell": events.GUARDS,
    "What exceptions mean": classes.GUARDS,
    "Leases and ends": leases.GUARDS,
    "Undo, and effects in our own database": undo.GUARDS,
    "Messages and sweeps": messages.GUARDS,
    "Limits": limits.GUARDS,
    "Providers": providers.GUARDS,
    "Ways to go on": ways.GUARDS,
    "Evidence and secrets": evidence.GUARDS,
    "Decisions and rights": decisions.GUARDS,
    "Between people": people.GUARDS,
    "Who is asked, and what they change": approvers.GUARDS,
    "Doors, looks and texts of others": doors.GUARDS,
}
GUARDS: tuple[Guard, ...] = tuple(guard for guards in CHAPTERS.values() for guard in guards)
BY_NAME: Mapping[str, Guard] = {guard.name: guard for guard in GUARDS}


def changes_of(guard: Guard) -> tuple[Change, ...]:
    """What is changed when a guard is dropped: with the one that covers it, both."""
    return (*guard.changes, *(BY_NAME[guard.covered_by].changes if guard.covered_by else ()))
