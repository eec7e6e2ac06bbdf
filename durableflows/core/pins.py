"""What a workflow pins beside its code at the start of each run: prompts, policies, and names of other versions.

    class Triage(Workflow[TriageState]):
        prompts = {"triage": "You sort mails of customers …"}
        policies = {"limits": {"USD": 50_000}}
        pins = {"model_route": "small-2026-10", "knowledge": "index 7"}

A run goes on with what it began with, whatever a deploy changes (P8): `run.manifest.prompt("triage")`.
Pure. Source: design, section 7; S3.11, S3.15.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from durableflows.core import shape
from durableflows.core.payload import JSON, sha256, storable_text
from durableflows.core.wording import did_you_mean
from durableflows.errors import InvalidDefinition, InvalidState, NotFoundError

OPTIONS = ("prompts", "policies", "pins")


@dataclass(frozen=True, slots=True)
class Pins:
    """As a class declares them. `manifest`: what each run keeps, digests; `contents`: digest -> what has it."""

    manifest: Mapping[str, JSON]
    contents: Mapping[str, JSON]


def read(where: str, body: Mapping[str, object]) -> Pins:
    """Take the pins from what a class sets. Raises InvalidDefinition for what is no text, or has no JSON form."""
    contents: dict[str, JSON] = {}
    prompts = {
        name: _keep(contents, storable_text(_text(where, "prompts", name, value)))
        for name, value in _named(where, "prompts", body)
    }
    policies = {name: _keep(contents, _policy(where, name, value)) for name, value in _named(where, "policies", body)}
    names = {name: _text(where, "pins", name, value) for name, value in _named(where, "pins", body)}
    found: dict[str, JSON] = {"prompts": {**prompts}, "policies": {**policies}, "pins": {**names}}
    return Pins(
        MappingProxyType({option: value for option, value in found.items() if value}), MappingProxyType(contents)
    )


def _named(where: str, option: str, body: Mapping[str, object]) -> list[tuple[str, object]]:
    given = body.get(option, {})
    if not isinstance(given, Mapping) or not all(isinstance(name, str) and name for name in given):
        raise InvalidDefinition(f"{where}: {option} is a mapping of names to values")
    return list(given.items())


def _text(where: str, option: str, name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidDefinition(f"{where}: {option}[{name!r}] is {value!r}, a text is needed")
    return value


def _policy(where: str, name: str, value: object) -> JSON:
    try:
        return shape.plain_marked(value, what=f"policies[{name!r}]")
    except InvalidState as error:
        raise InvalidDefinition(f"{where}: {error}") from None


def _keep(contents: dict[str, JSON], value: JSON) -> str:
    digest = sha256(value)
    contents[digest] = value
    return digest


class Manifest(Mapping[str, JSON]):
    """What a run pinned at its start. `load`: gives the content of a digest."""

    def __init__(self, data: Mapping[str, JSON], load: Callable[[str], JSON]) -> None:
        self._data, self._load = data, load

    def __getitem__(self, name: str) -> JSON:
        return self._data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def prompt(self, name: str) -> str:
        """The prompt as it was when the run began. Raises NotFoundError."""
        return str(self._load(self._digest("prompts", name)))

    def policy(self, name: str) -> JSON:
        """The policy as it was when the run began. Raises NotFoundError."""
        return self._load(self._digest("policies", name))

    def _digest(self, kind: str, name: str) -> str:
        known = self._data.get(kind)
        names = known if isinstance(known, dict) else {}
        if name not in names:
            raise NotFoundError(f"this run pinned no {kind} {name!r}{did_you_mean(name, list(names))}")
        return str(names[name])
