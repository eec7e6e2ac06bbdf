"""The name of a step as step bodies write it: `self.pay`. Owns that value alone; never runs a step."""

from dataclasses import dataclass
from typing import NoReturn

from durableflows.errors import InvalidDefinition


@dataclass(frozen=True, slots=True)
class StepRef:
    """The name of a step, as `self.pay` in a step body gives it. Return it; it cannot be called."""

    name: str

    def __call__(self, *arguments: object, **named: object) -> NoReturn:
        raise InvalidDefinition(
            f"{self.name}(...): return the step, do not call it. Write `return self.{self.name}`: "
            "the run goes there after this step's checkpoint is stored"
        )
