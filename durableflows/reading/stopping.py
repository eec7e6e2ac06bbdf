"""Pausing and resuming a provider, from the preview to the result, or why it was not done. Writes nothing itself.

What is posted counts only while the provider stands as it was shown; the verb looks again under the provider's lock.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from durableflows.core.breaker import Breaker, BreakerState, mark
from durableflows.errors import DurableflowsError
from durableflows.explain_words import full_stop
from durableflows.reading.acting import Context, Part, problems
from durableflows.reading.providers import Provider, one_of, sends_lately
from durableflows.reading.standing import now_of
from durableflows.reading.verbs import ReasonForm
from durableflows.selectors import Sight
from durableflows.services import providers as service

ALL = Sight(None, None)
"""Whoever may stop a provider stops it for all: the preview counts everything."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb on a provider, in words. `did`: what is said when it is done."""

    name: str
    words: str
    did: str
    means: str
    do: Callable[..., Breaker]


_PAUSE = "nothing more is sent to it, and nothing is asked, until somebody resumes it; what is under way ends"
_RESUME = "requests leave for it again, whoever or whatever has stopped them"
VERBS: Mapping[str, Verb] = {
    one.name: one
    for one in (
        Verb("pause", "Pause it", "It is paused: nothing more is sent to it.", _PAUSE, service.pause),
        Verb("resume", "Let requests leave again", "Requests leave for it again.", _RESUME, service.resume),
    )
}


def legal(breaker: Breaker) -> list[Verb]:
    """What would change anything now."""
    names = [name for name in VERBS if not _is_so(name, breaker)]
    return [VERBS[name] for name in names]


def _is_so(verb: str, breaker: Breaker) -> bool:
    return breaker.state is (BreakerState.PAUSED if verb == "pause" else BreakerState.CLOSED)


class Stopping:
    """One verb on one provider, as a page shows it and a form brings it back. Raises NotFoundError."""

    def __init__(self, request: HttpRequest, name: str, verb: str) -> None:
        self.person, self.name, self.verb, self.now = request.user, name, VERBS[verb], now_of(request)
        self.provider = one_of(name, ALL, self.now)
        data = request.POST if request.method == "POST" else None
        self.reason = ReasonForm(data)
        self.shown = str(data.get("shown", "")) if data is not None else ""

    def order(self) -> tuple[int, Context]:
        """Do what was posted, if the provider stands as it was shown. Says the status, and what is told; 200: done."""
        if not self.reason.is_valid():
            return 400, {}
        if self.refused:
            return 409, {"error": self.refused}
        if self.shown != mark(self.provider.breaker):
            return 409, {"changes": [full_stop(f"It is {self.provider.word} by now, {self.provider.why}".rstrip(", "))]}
        try:
            self.verb.do(self.name, by=self.person, reason=self.reason.cleaned_data["reason"], shown=self.shown)
        except DurableflowsError as error:
            self.provider = one_of(self.name, ALL, self.now)
            return 409, {"error": full_stop(str(error))}
        return 200, {}

    @property
    def refused(self) -> str:
        """Why it would change nothing; '' when it would."""
        if not _is_so(self.verb.name, self.provider.breaker):
            return ""
        why = f", {self.provider.why}" if self.provider.why else ""
        return full_stop(f"It is {self.provider.word} already{why}")

    def context(self, more: Mapping[str, Any]) -> Context:
        """All that the page shows."""
        parts = _pauses(self.provider, self._lately()) if self.verb.name == "pause" else _resumes(self.provider)
        return {
            "provider": self.provider,
            "verb": self.verb,
            "refused": self.refused,
            "looked": {"parts": [part for part in parts if part.lines]},
            "shown": mark(self.provider.breaker),
            "reason": self.reason,
            "problems": list(problems(self.reason)),
            **more,
        }

    def _lately(self) -> str:
        return sends_lately(self.name, ALL, self.now)


def _pauses(provider: Provider, lately: str) -> Iterator[Part]:
    count = provider.count
    yield Part("Stops", "look", ["requests, and lookups of what is in doubt"], ())
    yield Part("Waits for it already", "look", [provider.waits] if provider.waits else [], ())
    yield Part("Left in the last ten minutes: as much would wait from now on", "look", [lately], ())
    under_way = [f"{count.under_way:,} under way: what is answered is recorded"] if count.under_way else []
    yield Part("Ends as it would", "calm", under_way, ())
    yield _unknown(provider, "nobody asks what became of it while the provider is paused")


def _resumes(provider: Provider) -> Iterator[Part]:
    waiting = f"{provider.waits}: those that wait longest first, {service.AT_A_TIME} at a time at most"
    yield Part("Goes on", "good", [waiting if provider.waits else "nothing waits for it now"], ())
    yield Part("Why it was stopped: is it over?", "look", [provider.why] if provider.why else [], ())
    yield _unknown(provider, "what became of it is asked again")


def _unknown(provider: Provider, then: str) -> Part:
    count = provider.count.in_doubt
    lines = [f"{count:,} effect{'' if count == 1 else 's'} in doubt: {then}"]
    return Part("Unknown", "look", lines if count else [], ())
