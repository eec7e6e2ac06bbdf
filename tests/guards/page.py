"""Prints docs/reference/guards.md from the list."""

from collections import Counter

from tests.guards.listed import CHAPTERS, GUARDS
from tests.guards.values import ROOT, Change, Guard

PAGE = "docs/reference/guards.md"
LONGEST = 100
HEAD = """\
# Guards, and who notices their loss

Printed by `python -m tests.guards --write` from the lists in `tests/guards/`; do not edit.

Each line is one place of the engine that a [promise](../concepts/guarantees.md) rests on: a condition, a lock, a
commit, a flag. `make guards` drops them one at a time, each in a copy of the tree, and runs the test or the simulation
that stands beside it: that must turn red, and be green on the code as it is. Where another guard catches the same,
nobody would notice the loss of one alone: both are dropped. `make test` looks that each text still stands in its file
once, and drops those that a simulation of one schedule finds."""
PROMISES = {
    "P1": "the database alone is the truth; messages are hints",
    "P2": "one settlement, by the holder of the lease; what a provider said is kept whoever heard it",
    "P3": "one key for each logical operation",
    "P4": "intent before the act, receipt after it",
    "P5": "unknown is neither failed nor done, and doubt stays",
    "P6": "a cancel is final",
    "P7": "limits hold",
    "P8": "no silent upgrade",
    "P9": "a decision counts once, for what was shown, by who may decide now",
    "P10": "no limbo: a run that has not ended has a next thing",
    "P11": "no outside call and no user code in an engine's transaction",
    "P12": "clocks may lie",
    "P13": "evidence: what was changed from outside is noticed",
    "P14": "secrets are stored nowhere",
    "P15": "nothing ends over an open effect",
    "R28": "texts of others are inert: they neither run, nor disguise, nor forge a line",
    "rule 1": "reserve is one transaction",
    "rule 2": "nothing leaves after `send_by`, and a call ends in its time",
    "rule 3": "a send is open until its own outcome is known, or the settle time is over",
    "rule 4": "a lookup is asked when no send is open, and about one version of the row",
    "rule 5": "so is a verdict",
    "rule 6": "a freed lease leaves doubt",
    "rule 7": "a no speaks for its own send only",
    "rule 8": "a receipt is kept, in a commit of its own",
    "rule 9": "the key window counts from the first send, with a margin",
    "rule 10": "a cancel is asked, and confirmed when all is quiet",
    "rule 11": "what was sent and not claimed is sent again",
    "rule 12": "a send that was given up counts as an attempt",
    "rule 13": "what was absent is looked up once more",
    "rule 14": "orphans are ended, or treated as alive",
}


def write() -> None:
    """Write the page."""
    (ROOT / PAGE).write_text(page(), "utf-8")


def page() -> str:
    """The whole page."""
    kinds = Counter(guard.kind for guard in GUARDS)
    found = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    known = "\n".join(f"- **{name}** {text}" for name, text in PROMISES.items())
    parts = [HEAD, f"{len(GUARDS)} guards. Found by: {found}.", "## What rests on them", known]
    for title, guards in CHAPTERS.items():
        rows = ["| Guard | Rests on it | Dropped | Found by |", "|---|---|---|---|", *map(_row, guards)]
        parts += [f"## {title}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _row(guard: Guard) -> str:
    name = f"{guard.name}; covered by *{guard.covered_by}*" if guard.covered_by else guard.name
    dropped = "; ".join(_dropped(change) for change in guard.changes)
    return f"| {name} | {guard.rests} | {dropped} | {guard.kind}: {_finder(guard)} |"


def _dropped(change: Change) -> str:
    before, after = _lines(change.text), _lines(change.instead)
    gone = " ".join(line for line in before if line not in after) or " ".join(before)
    come = " ".join(line for line in after if line not in before)
    return f"{change.file}: {_code(gone)} → {_code(come) if come else 'nothing'}"


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _code(text: str) -> str:
    short = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return "`" + short.replace("|", "\\|") + "`"


def _finder(guard: Guard) -> str:
    """The test's name, without its parameters; its file when all of it is meant."""
    path, _, test = guard.found_by.partition("::")
    if not path.startswith("tests/"):
        return f"`{guard.found_by}`"
    return f"[{test.partition('[')[0].replace('_', ' ').removeprefix('test ') or path}](../../{path})"
