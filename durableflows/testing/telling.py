"""What a simulation's providers tell on their own, and when it arrives: at once, doubled, early or late, as the
schedule says; without a word in the schedule an event is lost.

Bodies are the project's: the scenario makes them, and the effect's own reader reads them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from durableflows import api, clock
from durableflows.core.definition import EffectDefinition
from durableflows.testing.faults import EVENT, Schedule, Telling

LATE_SECONDS = 3 * 3600.0
AGAIN_SECONDS = 30.0
TRIES = 8
Tell = Callable[[Callable[[], object], str], bool]


@dataclass
class Told:
    """An event on its way."""

    number: int
    provider: str
    body: Mapping[str, Any]
    due_at: datetime
    copies: int = 1
    tries: int = 0


class Events:
    """All events of one simulation. `survive` hands one over and says whether it was taken: else it is sent again."""

    def __init__(self, schedule: Schedule, survive: Tell, meet: Callable[[str, int], None]) -> None:
        self.schedule = schedule
        self.count = 0
        self.played: set[str] = set()
        self._survive, self._meet = survive, meet
        self._under_way: list[Told] = []

    def emit(self, effect: EffectDefinition[Any], body: Mapping[str, Any], at: datetime) -> None:
        """Send an event about an act, if the schedule lets one come. EARLY: it is there before the act's own answer."""
        self.count += 1
        self._meet(EVENT, self.count)
        how = self.schedule.at(EVENT, Telling, self.count)
        if not how:
            return
        self.played.add(how)
        late = timedelta(seconds=LATE_SECONDS if how == Telling.LATE else 0)
        told = Told(self.count, effect.provider, body, at + late, copies=2 if how == Telling.DOUBLED else 1)
        if how == Telling.EARLY and at <= clock.now():
            self._hand_over(told)
        else:
            self._under_way.append(told)

    def next(self) -> datetime | None:
        """When the next one arrives."""
        return min((told.due_at for told in self._under_way), default=None)

    def arrive(self) -> bool:
        """Hand one over that is due. False: none is."""
        due = [told for told in self._under_way if told.due_at <= clock.now()]
        if not due:
            return False
        self._under_way.remove(due[0])
        self._hand_over(due[0])
        return True

    def _hand_over(self, told: Told) -> None:
        name = f"event {told.number}"
        for _ in range(told.copies):
            told.tries += 1
            if not self._survive(lambda: self._take(told), name) and told.tries <= TRIES:
                told.due_at = clock.now() + timedelta(seconds=AGAIN_SECONDS)
                self._under_way.append(told)
                return

    def _take(self, told: Told) -> None:
        api.provider_event(told.provider, f"faulttest-{told.number}", told.body)
