"""The library part of the retry matrix: printed from the tables that `core.libraries` judges by.

Called by `management.matrix` and `management.printed`. Reads no row and changes nothing.
"""

from collections.abc import Sequence

from durableflows.core.classify import answer_of, failure_of
from durableflows.core.definition import StepDefinition, StepKind
from durableflows.core.http_answers import NOT_DONE, REFUSED, http_failure
from durableflows.core.libraries import OURS, OUTSIDE
from durableflows.core.outcomes import AnswerKind, FailureKind
from durableflows.core.phases import LIBRARIES, Rule

Table = Sequence[Sequence[str]]

STEP = StepDefinition(name="pay", kind=StepKind.TASK)
BY_STATUS = "by the status of the answer, below"

LIBRARY_HEADS = ("Library", "Raised", "When", "Inside an effect", "Elsewhere in the step")
LIBRARIES_TOP = """\
## What exceptions of libraries mean

The same words for what others raise, inside an effect and outside. A project's own are asked first: the callables that
`DURABLEFLOWS["CLASSIFIERS"]` names take an exception, and return one of ours or None. Classes are known by name, no
library is imported, and of each library the last line takes all that is left. A class that is named here stands for
what derives from it too.

**It is trusted that an effect's function makes one request.** "Never sent", "not done" and "refused" speak of the
request that failed. They become doubt when the library has sent before by itself (a redirect, a retry, a log-in), and
when another failure that is in doubt was being handled. The project's own database (`django.db`) is not listed: it says
nothing of what the provider has done, so in an effect it is in doubt."""
ANSWERS_HEADS = ("Status", "Inside an effect")
ANSWERS_TOP = """\
### An HTTP answer

By `http_failure(status, headers, …)`, for adapters, and for what `raise_for_status()` raises. Retry-After is kept in
either form and never shortened; a date counts from the answer's own Date, and from this machine's clock only where
there is none. It delays the next send, of what is in doubt too."""
OUTSIDE_NOTE = """\
Elsewhere in a step, what is in doubt is tried again when the request only read (GET, HEAD, OPTIONS): nothing can have
changed. A lost answer to another request parks the run, for there is no ledger to look it up by: make it an effect, or
say `step(transient=…)`."""


def parts() -> list[str]:
    """Titles and tables, in the order of the page."""
    return [
        *(LIBRARIES_TOP, table(LIBRARY_HEADS, rules())),
        *(OUTSIDE_NOTE, ANSWERS_TOP, table(ANSWERS_HEADS, answers())),
    ]


def table(heads: Sequence[str], rows: Table) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def rules() -> Table:
    """Each rule: library, exceptions, condition, and what the two readers make of it."""
    return [(library, *_of(rule)) for library, found in LIBRARIES.items() for rule in found]


def _of(rule: Rule) -> tuple[str, str, str, str]:
    raised = ", ".join(f"`{name}`" for name in rule.names)
    if rule.says is None:
        return raised, rule.when, BY_STATUS, BY_STATUS
    return raised, rule.when, str(rule.says), elsewhere(rule.says)


def elsewhere(says: AnswerKind) -> str:
    """What such a verdict makes of an attempt where no effect is at stake."""
    ours = OURS[says]
    kind = failure_of(ours("x"), STEP).kind if issubclass(ours, OUTSIDE) else FailureKind.OUR_CODE
    return str(kind)


def answers() -> Table:
    """Each kind of HTTP answer with what it says of the request."""
    refused = ", ".join(str(status) for status in sorted(REFUSED))
    not_done = ", ".join(str(status) for status in sorted(NOT_DONE))
    return [
        ("2xx whose body cannot be read", _said(200)),
        ("3xx: no redirect is followed for an effect", _said(302)),
        (refused, _said(400)),
        ("one of these as a page of a proxy, not in the provider's own form", _said(400, readable=False)),
        ("401", _said(401)),
        ("408, 409, and any other 4xx", _said(409)),
        ("409 that says that the key is in use", _said(409, key_in_use=True)),
        (not_done, _said(429)),
        ("5xx, 503 too", _said(503)),
        ("503 of a provider that declares that it has done nothing then", _said(503, not_done=(503,))),
    ]


def _said(status: int, *, readable: bool = True, key_in_use: bool = False, not_done: Sequence[int] = ()) -> str:
    failure = http_failure(status, {}, what="x", readable=readable, key_in_use=key_in_use, not_done=not_done)
    return str(answer_of(failure).kind)
