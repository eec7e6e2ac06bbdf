"""What a test lets happen while bodies of steps run, and how often each of them ran."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Bodies:
    """`during`: for each step's name what happens in its body, once each; `ran`: the names of bodies, as they ran."""

    during: dict[str, list[Callable[[], object]]] = field(default_factory=dict, kw_only=True)
    ran: list[str] = field(default_factory=list, kw_only=True)

    def run(self, name: str) -> None:
        """A body begins: do what the test wants to happen there, once each."""
        self.ran.append(name)
        if self.during.get(name):
            self.during[name].pop(0)()

    def fails(self, name: str, *errors: Exception) -> None:
        """Let a body raise these, one a time it runs."""
        for error in errors:
            self.during.setdefault(name, []).append(_raiser(error))


def _raiser(error: Exception) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act
