"""One verb on all runs of a list, a portion at a time: each is looked at, then each is done, until somebody stops.

What was found so far travels with the form, signed for the person who is at it: nothing is stored, and whoever leaves
has stopped. Every run is looked up, and every right asked, anew at its turn. Writes nothing itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from django.core import signing
from django.http import HttpRequest, QueryDict

from durableflows.core.money import Money
from durableflows.core.operate import sums
from durableflows.models import WorkflowRun
from durableflows.reading import runs
from durableflows.reading.bulk import CHANGED, REFUSED, Row, carried_out, looked_at
from durableflows.reading.verbs import IN_BULK, VERBS, Verb
from durableflows.reading.window import ORDERS, PAGE

MOST = 1000
"""So many runs at most: what travels with the form stays small."""
PORTION = PAGE
SALT = "durableflows.bulk-all"
HOURS = 12
DIGITS = 16
"""Of a preview's digest: enough to tell that it has changed."""
LOOK, CONFIRM, DO, OVER = "look", "confirm", "do", "over"
NOT_REACHED = "Not done: you stopped before it."
GONE = "Not done: it is not there any more, or you may not see it any more."


@dataclass(slots=True)
class Course:
    """How far it has come. All of it is plain values: it travels as JSON.

    left      ids that are still to be looked at, and then to be done
    shown     id -> the first digits of the digest of the preview that was counted
    parts     what the previews say, by their heading: how many things, and the sums of money (minor units, currency)
    results   of each run: id, tone, words
    """

    verb: str
    back: str
    total: int
    left: list[str]
    phase: str = LOOK
    is_cut: bool = False
    reason: str = ""
    shown: dict[str, str] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)
    money: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    results: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def gone_through(self) -> int:
        """How many of this phase are behind us."""
        return (self.total if self.phase == LOOK else len(self.shown)) - len(self.left)

    @property
    def ahead(self) -> int:
        """How many this phase goes through in all."""
        return self.total if self.phase == LOOK else len(self.shown)

    def count(self, tone: str) -> int:
        """How many runs have come to this."""
        return sum(1 for _, found, _ in self.results if found == tone)


def verb_of(name: str) -> Verb | None:
    """The verb, if it is one for many runs."""
    return VERBS[name] if name in IN_BULK else None


def begin(request: HttpRequest, verb: Verb, back: str) -> Course:
    """All runs of the list at this address, in its order, up to MOST."""
    choice = runs.chosen(QueryDict(back.removeprefix("?")))
    found: Sequence[UUID] = ()
    if not choice.problem:
        rows = runs.narrowed(request, choice).order_by(*ORDERS[runs.ORDERS[choice.sort]])
        found = list(rows.values_list("pk", flat=True)[: MOST + 1])
    ids = [str(run_id) for run_id in found[:MOST]]
    return Course(verb.name, back, len(ids), ids, is_cut=len(found) > MOST, phase=LOOK if ids else OVER)


def go_on(request: HttpRequest, course: Course) -> list[Row]:
    """Take the next portion; says what it found, run by run."""
    verb = VERBS[course.verb]
    portion, course.left = course.left[:PORTION], course.left[PORTION:]
    rows = list(looked_at(request, verb, [UUID(run_id) for run_id in portion]))
    there = {str(row.run.pk) for row in rows}
    course.results += [(run_id, REFUSED, GONE) for run_id in portion if run_id not in there]
    if course.phase == DO:
        rows = [_do(request, course, verb, row) for row in rows]
    else:
        for row in rows:
            _count(course, row)
    if not course.left:
        _end_phase(course)
    return rows


def confirm(course: Course, reason: str) -> None:
    """Begin to do what was looked at."""
    course.phase, course.reason, course.left = DO, reason, list(course.shown)


def stop(course: Course) -> None:
    """End it here: what was done stays done, and of the others nothing was done."""
    left = course.left if course.phase == DO else [*course.shown, *course.left]
    course.results += [(run_id, CHANGED, NOT_REACHED) for run_id in left]
    course.left, course.phase = [], OVER


def _do(request: HttpRequest, course: Course, verb: Verb, row: Row) -> Row:
    # The whole digest counts only while its first digits are those that were counted.
    shown = row.digest if row.digest[:DIGITS] == course.shown.get(str(row.run.pk)) else ""
    done = carried_out(request, verb, row, shown, course.reason)
    course.results.append((str(row.run.pk), done.tone, done.result))
    return done


def _count(course: Course, row: Row) -> None:
    if row.looked.refused:
        course.results.append((str(row.run.pk), REFUSED, row.looked.refused))
        return
    course.shown[str(row.run.pk)] = row.digest[:DIGITS]
    for part in row.looked.parts:
        course.parts[part.words] = course.parts.get(part.words, 0) + len(part.lines)
        amounts = sums([*_amounts(course, part.words), *part.money])
        if amounts:
            course.money[part.words] = [(one.amount_minor, one.currency) for one in amounts]


def _amounts(course: Course, words: str) -> Iterator[Money]:
    for minor, currency in course.money.get(words, []):
        yield Money(minor, currency)


def _end_phase(course: Course) -> None:
    course.phase = CONFIRM if course.phase == LOOK and course.shown else OVER


def totals(course: Course) -> list[tuple[str, int, list[Money]]]:
    """What all previews say together: heading, how many things, and how much money that is."""
    return [(words, count, list(_amounts(course, words))) for words, count in course.parts.items()]


def ended(request: HttpRequest, course: Course) -> list[tuple[WorkflowRun, str, str]]:
    """Each run with what became of it, first those that were left out; none that the person sees no more."""
    found = {str(run.pk): run for run in runs.visible(request).filter(pk__in=[one[0] for one in course.results])}
    return [(found[run_id], tone, words) for run_id, tone, words in course.results if run_id in found]


def write(course: Course, person: Any) -> str:
    """The course as the form carries it."""
    return signing.dumps(asdict(course), salt=f"{SALT}.{person.pk}", compress=True)


def read(text: str, person: Any) -> Course | None:
    """The course that a form brought back; None when it is another person's, is hours old, or was changed."""
    try:
        kept: dict[str, Any] = signing.loads(text, salt=f"{SALT}.{person.pk}", max_age=HOURS * 3600)
        return Course(**kept)
    except (signing.BadSignature, TypeError):  # TypeError: signed by another release, which kept something else
        return None
