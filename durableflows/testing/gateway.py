"""A gateway that fails as a script says: for tests of effects and of bodies, in the place of the real client."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from durableflows.errors import InvalidState, NeverSent, Permanent, Transient, UnknownOutcome
from durableflows.testing.faults import Behaviour
from durableflows.testing.provider import ServerError

_RAISES: dict[str, Callable[[], Exception]] = {
    Behaviour.ANSWER_LOST: lambda: UnknownOutcome("read timed out"),
    Behaviour.REQUEST_LOST: lambda: UnknownOutcome("read timed out"),
    Behaviour.REFUSED: lambda: NeverSent("connection refused"),
    Behaviour.BUSY: lambda: Transient("429: too many requests, not processed"),
    Behaviour.ERROR_ACTED: lambda: ServerError("500: internal error"),
    Behaviour.ERROR: lambda: ServerError("502: bad gateway"),
    Behaviour.REJECTED: lambda: Permanent("402: refused for good"),
}
_ACTS = (Behaviour.ANSWERS, Behaviour.ANSWER_LOST, Behaviour.ERROR_ACTED)


class FlakyGateway:
    """Calls `act` and answers, or does what the next word of the script says; when it is used up, it answers.

        gateway = FlakyGateway(lambda **asked: RefundReceipt(id="re_1"), script=["answer-lost", "refused"])
        monkeypatch.setattr(payments, "refund", gateway)
        ...
        assert len(gateway.acts) == 1

    Shapes and units   script: words of `Behaviour`, or exceptions to raise without acting; calls, acts: the arguments
                       of every call, and of those that acted
    Raises             InvalidState for a word that a gateway by itself cannot play (pending, slow: script `act`)
    """

    def __init__(self, act: Callable[..., Any], script: Iterable[str | Exception] = ()) -> None:
        self._act, self._script = act, deque(script)
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.acts: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        for word in self._script:
            if not isinstance(word, Exception) and word not in (*_RAISES, Behaviour.ANSWERS):
                known = ", ".join(map(str, (Behaviour.ANSWERS, *_RAISES)))
                raise InvalidState(f"{word!r} cannot stand in a gateway's script: say {known}, or an exception")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Take a call as the real gateway would."""
        word = self._script.popleft() if self._script else Behaviour.ANSWERS
        self.calls.append((arguments, named))
        if isinstance(word, Exception):
            raise word
        answer = None
        if word in _ACTS:
            self.acts.append((arguments, named))
            answer = self._act(*arguments, **named)
        if word in _RAISES:
            error = _RAISES[word]()
            raise error
        return answer

    @property
    def is_used_up(self) -> bool:
        """Has everything in the script happened?"""
        return not self._script
