"""Until when people may answer, by spans or by the clock on a wall, and when they are reminded.

Owns the arithmetic of days, working days and changes of summer time. Values only: the caller says what time it is.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, cast
from zoneinfo import ZoneInfo, available_timezones

from durableflows.core.payload import JSON
from durableflows.core.wording import did_you_mean
from durableflows.errors import InvalidDefinition

MOST_DAYS = 366
SATURDAY = 5


@dataclass(frozen=True, slots=True)
class Until:
    """Until a time of day in a zone, some days after asking: `Until(time(17), days=2, zone="Europe/Berlin")`.

    Shapes and units   days: 0 for the first such time that comes; workdays_only: Saturdays and Sundays are not counted
                       and are no last day. A time that the clock leaves out counts as the same span later, one that it
                       shows twice counts the second time: nobody has less time than the wall says.
    """

    time: dt.time
    days: int = 0
    zone: str = "UTC"
    workdays_only: bool = False

    def __post_init__(self) -> None:
        given: object = self.time
        if not isinstance(given, dt.time) or given.tzinfo is not None:
            raise InvalidDefinition(f"Until: time={given!r}, a time of day without a zone is needed, like time(17, 0)")
        if type(self.days) is not int or not 0 <= self.days <= MOST_DAYS:
            raise InvalidDefinition(f"Until: days={self.days!r}, a whole number from 0 to {MOST_DAYS} is needed")
        if not _is_zone(self.zone):
            near = did_you_mean(str(self.zone), available_timezones())
            raise InvalidDefinition(f"Until: zone={self.zone!r} is no time zone{near}, write one like 'Europe/Berlin'")

    def after(self, now: datetime) -> datetime:
        """The moment (aware, UTC), always later than now."""
        day = self._first_day(now)
        for _ in range(self.days):
            day = self._following(day)
        moment = self._moment(day)
        while moment <= now:
            day = self._following(day)
            moment = self._moment(day)
        return moment

    def _first_day(self, now: datetime) -> dt.date:
        today = now.astimezone(ZoneInfo(self.zone)).date()
        return today if self._counts(today) or self.days else self._following(today)

    def _following(self, day: dt.date) -> dt.date:
        day += timedelta(days=1)
        while not self._counts(day):
            day += timedelta(days=1)
        return day

    def _counts(self, day: dt.date) -> bool:
        return not self.workdays_only or day.weekday() < SATURDAY

    def _moment(self, day: dt.date) -> datetime:
        # A time that is left out has a fold too: before the change, and, by the new offset, even earlier.
        local = datetime.combine(day, self.time, ZoneInfo(self.zone))
        return max(local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))


def _is_zone(name: object) -> bool:
    try:
        return isinstance(name, str) and bool(ZoneInfo(name))
    except (KeyError, ValueError, OSError):  # not there, no name of a file, or a folder of zones
        return False


Expires: TypeAlias = timedelta | Until


def ends_at(expires: Expires, now: datetime) -> datetime:
    """When the time is over that begins now."""
    return expires.after(now) if isinstance(expires, Until) else now + expires


def zone_of(expires: Expires) -> str:
    """The zone in which people are told that time; '' for that of whoever looks."""
    return expires.zone if isinstance(expires, Until) else ""


def words(expires: Expires) -> str:
    """Say it for people: "until 17:00 (Europe/Berlin), 2 working days later"; '' for a span."""
    if not isinstance(expires, Until):
        return ""
    days = "working day" if expires.workdays_only else "day"
    later = f", {expires.days} {days}{'' if expires.days == 1 else 's'} later" if expires.days else ""
    return f"until {expires.time:%H:%M} ({expires.zone}){later}"


def dump(expires: Expires) -> dict[str, JSON]:
    """Write it as JSON, for a rung of a ladder."""
    if not isinstance(expires, Until):
        return {"expires_seconds": expires.total_seconds()}
    return {
        "until": {
            "time": expires.time.isoformat(),
            "days": expires.days,
            "zone": expires.zone,
            "workdays_only": expires.workdays_only,
        }
    }


def load(data: Mapping[str, JSON]) -> Expires:
    """Read what `dump` has written."""
    until = data.get("until")
    if not isinstance(until, dict):
        return timedelta(seconds=float(cast(float, data["expires_seconds"])))
    return Until(
        dt.time.fromisoformat(str(until["time"])),
        days=cast(int, until["days"]),
        zone=str(until["zone"]),
        workdays_only=bool(until["workdays_only"]),
    )


def reminders(remind: Sequence[timedelta], *, asked_at: datetime, expires_at: datetime) -> list[datetime]:
    """The moments at which people are reminded, in order, each once; those outside of the time to answer are left out.

    remind   more than nothing: so long after asking; less than nothing: so long before the time is over
    """
    moments = {(asked_at if span > timedelta(0) else expires_at) + span for span in remind}
    return sorted(moment for moment in moments if asked_at < moment < expires_at)
