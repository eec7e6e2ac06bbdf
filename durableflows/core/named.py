"""Which effects a step's body names, as far as its code shows it. Pure; called by `core.check` at declaration.

By name, and by a module's name and theirs (`effects.refund`), in what is defined inside of it too. One that the body
gets in another way, by a helper or from a table, is refused when it is used.
"""

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from types import CodeType, FunctionType, ModuleType

from durableflows.core.definition import EffectDefinition


def effects_named(function: Callable[..., object] | None) -> list[EffectDefinition[object]]:
    """List the effects, once each; nothing for what is not a plain function."""
    if not isinstance(function, FunctionType):
        return []
    values = [*_closed_over(function), *_looked_up(function.__code__, function.__globals__)]
    return list(dict.fromkeys(value for value in values if isinstance(value, EffectDefinition)))


def _closed_over(function: FunctionType) -> list[object]:
    try:
        used = inspect.getclosurevars(function)
    except ValueError:  # a closure over a name that has no value yet
        return []
    return [*used.nonlocals.values(), *used.globals.values()]


def _looked_up(code: CodeType, names: Mapping[str, object]) -> Iterator[object]:
    """Give the globals that a piece of code and those inside of it load, and attributes of modules among them."""
    for first, second in pairwise(dis.get_instructions(code)):
        if first.opname == "LOAD_GLOBAL":
            value = names.get(first.argval)
            yield value
            if isinstance(value, ModuleType) and second.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                yield vars(value).get(second.argval)  # not getattr: it may import, or compute
    for inside in code.co_consts:
        if isinstance(inside, CodeType):
            yield from _looked_up(inside, names)
