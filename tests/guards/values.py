"""What a guard is, as data: the text in the source, the text that a hurried change would leave, and who must notice."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENGINE = "durableflows/"
SIMULATION = "faulttest "


@dataclass(frozen=True, slots=True)
class Change:
    """One place in a file of the engine: `text` stands there exactly once, and `instead` takes its place."""

    file: str
    text: str
    instead: str

    def apply(self, root: Path) -> None:
        """Make the change in a copy of the tree. Raises ValueError unless the text stands there once."""
        path = root / ENGINE / self.file
        source = path.read_text("utf-8")
        if source.count(self.text) != 1:
            raise ValueError(f"{self.file} has {source.count(self.text)} times, not once: {self.text!r}")
        path.write_text(source.replace(self.text, self.instead), "utf-8")


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard: what rests on it (promises of the design, rules of its protocol), where it stands, and who notices.

    found_by    a test's id; or `faulttest SCENARIO --replay "…"`: the simulation must say which promise is broken
    covered_by  another guard that catches the same: alone nobody notices this one's loss, so both are dropped
    """

    name: str
    rests: str
    file: str
    text: str
    instead: str
    found_by: str
    more: tuple[Change, ...] = ()
    covered_by: str = ""

    @property
    def changes(self) -> tuple[Change, ...]:
        """Every place that is changed when this guard alone is dropped."""
        return (Change(self.file, self.text, self.instead), *self.more)

    @property
    def kind(self) -> str:
        """The kind of test that finds it, in a word or two."""
        if self.found_by.startswith(SIMULATION) or "test_faulttest" in self.found_by:
            return "simulation"
        if "sigkill" in self.found_by or "test_killed_workers" in self.found_by:
            return "SIGKILL"
        folder = self.found_by.split("/")[1]
        return {"concurrency": "PostgreSQL pair", "fault": "fault", "unit": "values"}.get(folder, folder)
