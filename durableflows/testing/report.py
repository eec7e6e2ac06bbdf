"""What many simulations showed: how many held, the matrix of boundaries and behaviours, and what broke."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from durableflows.testing.faults import SLUGS, Behaviour, Post, Telling
from durableflows.testing.play import Outcome
from durableflows.testing.promises import Standing

NO_STRIKE = "no strike"
ANSWERS = str(Behaviour.ANSWERS)
CELL = 7

Cell = Counter[Standing]


@dataclass
class Report:
    """The result of `faulttest`. `holds` is what a test asserts; `text` says why not."""

    scenario: str
    workflow: str
    seed: int
    played: int = 0
    standings: Cell = field(default_factory=Counter)
    matrix: dict[tuple[str, str], Cell] = field(default_factory=dict)
    posts: dict[str, Cell] = field(default_factory=dict)
    failures: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    left_out: list[str] = field(default_factory=list)
    """What no schedule plays, because the scenario does not say how it looks."""

    @property
    def holds(self) -> bool:
        """Did every promise hold in every schedule?"""
        return not self.standings[Standing.BROKEN] and self.played > 0

    def add(self, outcome: Outcome) -> None:
        """Count one schedule in each cell that it really met."""
        self.played += 1
        self.standings[outcome.standing] += 1
        rows = [slug for slug in outcome.struck if slug in SLUGS] or [NO_STRIKE]
        columns = [one for one in outcome.behaviours if one != ANSWERS] or [ANSWERS]
        for row in rows:
            for column in columns:
                self.matrix.setdefault((row, column), Counter())[outcome.standing] += 1
        for post in outcome.posted:
            self.posts.setdefault(post, Counter())[outcome.standing] += 1

    @classmethod
    def merged(cls, parts: "list[Report]") -> "Report":
        """One report of what several processes played."""
        whole = cls(parts[0].scenario, parts[0].workflow, parts[0].seed) if parts else cls("", "", 0)
        whole.left_out = parts[0].left_out if parts else []
        for part in parts:
            whole.played += part.played
            whole.standings.update(part.standings)
            for place, cell in part.matrix.items():
                whole.matrix.setdefault(place, Counter()).update(cell)
            for post, cell in part.posts.items():
                whole.posts.setdefault(post, Counter()).update(cell)
            known = [failure.schedule for failure in whole.failures]
            whole.failures += [failure for failure in part.failures if failure.schedule not in known]
            whole.seconds = max(whole.seconds, part.seconds)
        return whole

    @property
    def summary(self) -> str:
        """One line: how many schedules, how they ended, how fast."""
        ok, waits, broken = (self.standings[standing] for standing in Standing)
        pace = f", {self.played / self.seconds:.0f} a second" if self.seconds > 0 else ""
        return (
            f"{self.scenario}: {self.played} schedules, seed {self.seed}: {ok} ended, {waits} wait for a person, "
            f"{broken} BROKEN ({self.seconds:.1f} s{pace})"
        )

    @property
    def text(self) -> str:
        """The whole report for people."""
        return "\n".join(
            [
                self.summary,
                "",
                *matrix_lines(self),
                "",
                *_post_lines(self),
                *_left_out_lines(self),
                *failure_lines(self),
            ]
        ).rstrip()

    def __str__(self) -> str:
        return self.text if self.holds else "\n".join([self.summary, *failure_lines(self)])

    @property
    def data(self) -> dict[str, object]:
        """The whole report for programs."""
        return {
            "scenario": self.scenario,
            "workflow": self.workflow,
            "seed": self.seed,
            "schedules": self.played,
            "seconds": round(self.seconds, 2),
            "holds": self.holds,
            "standings": {str(standing): self.standings[standing] for standing in Standing},
            "matrix": [
                {"boundary": row, "provider": column, **_numbers(cell)} for (row, column), cell in self.matrix.items()
            ],
            "left_out": self.left_out,
            "messages": [{"fault": post, **_numbers(cell)} for post, cell in self.posts.items()],
            "failures": [
                {
                    "replay": str(failure.schedule),
                    "broken": [{"promise": one.promise, "text": one.text} for one in failure.broken],
                    "story": failure.story,
                    "explain": failure.explained,
                }
                for failure in self.failures
            ],
        }


def _numbers(cell: Cell) -> dict[str, int]:
    return {str(standing): cell[standing] for standing in Standing}


def matrix_lines(report: Report) -> list[str]:
    """Boundaries down, what the provider did across; only what was met."""
    order = [str(behaviour) for behaviour in Behaviour]
    columns = sorted({column for _, column in report.matrix}, key=order.index)
    known = [NO_STRIKE, *SLUGS]
    rows = sorted({row for row, _ in report.matrix}, key=known.index)
    width = max((len(row) for row in rows), default=0)
    title = "Where somebody died, stalled or cancelled (down), what the provider did (across): ended, +waits, !BROKEN"
    lines = [title]
    lines += _heads(columns, width)
    for row in rows:
        cells = "".join(_cell(report.matrix.get((row, column))).rjust(CELL + 1) for column in columns)
        lines.append(f"{row.ljust(width)}{cells}")
    return lines


def _heads(columns: Iterable[str], width: int) -> list[str]:
    """Names of columns, broken at the hyphen: two short lines are narrower than one long one."""
    pairs = [column.partition("-") for column in columns]
    return [
        "".join([" " * width, *((first + dash).rjust(CELL + 1) for first, dash, _ in pairs)]),
        "".join([" " * width, *(last.rjust(CELL + 1) for _, _, last in pairs)]),
    ]


def _cell(cell: Cell | None) -> str:
    if not cell:
        return "-"
    ok, waits, broken = (cell[standing] for standing in Standing)
    text = f"{ok}+{waits}" if waits else f"{ok}"
    return f"{text}!{broken}" if broken else text


def _post_lines(report: Report) -> list[str]:
    kinds = {"Messages": [str(post) for post in Post], "Events": [str(how) for how in Telling]}
    met = {what: [name for name in names if name in report.posts] for what, names in kinds.items()}
    return [
        f"{what}: " + ", ".join(f"{name} {_cell(report.posts[name])}" for name in names)
        for what, names in met.items()
        if names
    ]


def _left_out_lines(report: Report) -> list[str]:
    return ["", "Not played:", *(f"  {one}" for one in report.left_out)] if report.left_out else []


def failure_lines(report: Report) -> list[str]:
    """Each failure: what does not hold, how to see it again, and what happened."""
    lines: list[str] = []
    for failure in report.failures:
        lines += ["", *(f"BROKEN {one.promise}: {one.text}" for one in failure.broken)]
        lines += [f'again: manage.py durableflows faulttest {report.scenario} --replay "{failure.schedule}"']
        lines += ["what happened:", *(f"  {line}" for line in failure.story)]
        lines += ["explained:", *(f"  {line}" for line in failure.explained)]
    return lines
