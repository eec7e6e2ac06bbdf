"""The verbs of `manage.py durableflows` with their options, as `argparse` reads them. `verbs` does them."""

from collections.abc import Callable

from django.core.management.base import CommandParser

from durableflows import exports
from durableflows.core.states import RUN_ENDED, RunState
from durableflows.management import faulttests, options
from durableflows.services.reconcile import VERDICTS

Verb = Callable[[str, str], CommandParser]
"""Adds a verb with its help."""


def add_verbs(verb: Verb) -> None:
    """Declare every verb."""
    _add_readers(verb)
    _add_operators(verb)
    _add_writers(verb)
    _add_provider(verb)
    _add_upkeep(verb)
    _add_export(verb)
    _add_proofs(verb)
    _add_faulttest(verb)
    _add_printed(verb)


def _add_readers(verb: Verb) -> None:
    runs = verb("list", "runs, newest first")
    runs.add_argument("--workflow", default="", help="only runs of this workflow")
    runs.add_argument("--state", default="", choices=[str(state) for state in RunState], help="only in this state")
    runs.add_argument("--limit", type=options.limit, default=50, help="at most so many (default 50, at most 1000)")
    for name, text in (("show", "one run with its rows"), ("explain", "one run in plain sentences")):
        verb(name, text).add_argument("run", help="the run's id, or its business key")


def _add_faulttest(verb: Verb) -> None:
    played = verb(
        "faulttest", "play a workflow through crashes, lost messages and faulty providers, in a test database"
    )
    played.add_argument("name", help="a workflow, or one scenario of a faulttests.py")
    played.add_argument("--schedules", type=options.many, default=500, help="how many for each scenario (default 500)")
    played.add_argument("--seed", type=options.count, default=1, help="of the schedules that are drawn (default 1)")
    played.add_argument("--replay", default="", help="one schedule, as it was printed, instead of many")
    played.add_argument(
        "--database",
        choices=[faulttests.TEST, faulttests.MEMORY],
        default=faulttests.TEST,
        help="a test database beside the project's own, or SQLite in memory, which is quicker",
    )
    played.add_argument(
        "--processes", type=options.count, default=0, help="play side by side (default: one a processor)"
    )


def _add_writers(verb: Verb) -> None:
    signal = verb("signal", "send a message to a run: to the step that waits for this name, or to the next that will")
    resolve = verb("resolve", "say what happened with an effect in doubt")
    signal.add_argument("run", help="the run's id, or its business key")
    signal.add_argument("name", help="as wait_for(...) names it")
    signal.add_argument("--payload", type=options.json_value, default=None, help='as JSON: {"amount": 5}')
    signal.add_argument("--key", default="", help="the same key again is dropped")
    signal.add_argument("--by", default="", help="username: acts with this person's rights, in this person's name")
    resolve.add_argument("effect", help="the effect's id, as `show` prints it")
    resolve.add_argument(
        "--verdict",
        required=True,
        choices=VERDICTS,
        help="happened: with --receipt; did_not_happen: it may be sent again, under a new key; ask_again: the lookup; "
        "seen: what contradicts it was looked at; undone: by hand, what the engine could not undo",
    )
    resolve.add_argument(
        "--row-version", required=True, type=options.count, help="as `show` printed it: what you decided on"
    )
    resolve.add_argument(
        "--receipt",
        type=options.receipt,
        help='for happened: what the effect would have returned, as JSON: {"id": "re_17"}',
    )
    migrate = verb("migrate", "let a run, or all of a workflow that can, go on under a newer version")
    migrate.add_argument("run", nargs="?", default="", help="the run's id, or its business key")
    migrate.add_argument("--workflow", default="", help="all of its live runs that declared migrations lead further")
    migrate.add_argument("--to", dest="target", type=options.count, help="default: the highest that can be reached")
    migrate.add_argument("--dry-run", action="store_true", help="say what it would do to the run, and do nothing")
    _add_person(resolve)
    _add_person(migrate)


def _add_provider(verb: Verb) -> None:
    provider = verb("provider", "how providers stand, and to pause or resume one: nothing is sent to it meanwhile")
    provider.add_argument("name", nargs="?", default="", help="as effects name it; without it: all of them")
    provider.add_argument("action", nargs="?", default="show", choices=["show", "pause", "resume"])
    provider.add_argument("--reason", default="", help="stays on the record; needed to pause and to resume")
    provider.add_argument("--by", default="", help="username: acts with this person's rights, in this person's name")


OPERATORS = {
    "cancel": "ask for the end of a run; it ends when nothing of it is in doubt any more",
    "compensate": "undo what a run did, newest first, and end it; of one whose undo failed, what is left",
    "retry": "let a parked run go on, or bring its retry forward",
    "pause": "let a run stand still: what is under way ends, and nothing more begins",
    "resume": "let a paused run go on",
    "extend": "give a run more time or budget; one that these have ended goes on where it stood",
    "edit": "change fields of the state of a run that stands still",
    "redrive": "let a failed or parked run go on from an earlier step; what has happened is not done again",
    "abandon": "end a run over what is open, and name who settles that",
}


def _add_operators(verb: Verb) -> None:
    parsers = {name: verb(name, text) for name, text in OPERATORS.items()}
    for parser in parsers.values():
        parser.add_argument("run", help="the run's id, or its business key")
        parser.add_argument("--dry-run", action="store_true", help="say what it would do, and do nothing")
        _add_person(parser)
    extend, redrive, abandon = parsers["extend"], parsers["redrive"], parsers["abandon"]
    extend.add_argument(
        "--deadline",
        type=options.span_or_moment,
        default=None,
        help="so much more, 90m 36h 3d 2w, or until 2030-01-31T12:00Z",
    )
    extend.add_argument(
        "--budget",
        type=options.more_budget,
        action="append",
        default=[],
        metavar="NAME=MORE",
        help="tool_calls=5, cost_usd=1.50, idle=1h; again for another limit",
    )
    parsers["edit"].add_argument(
        "--set",
        dest="changes",
        type=options.field,
        action="append",
        required=True,
        metavar="NAME=JSON",
        help="amount=5, or name='\"Ada\"'; again for another field",
    )
    parsers["edit"].add_argument(
        "--checkpoint", type=options.count, help="checkpoint_sequence as `show` printed it: refuse any other"
    )
    redrive.add_argument("--step", required=True, help="a step that the run has been at")
    redrive.add_argument("--item", default="", help="the item's key, for a step of each(...)")
    redrive.add_argument(
        "--repeat", action="append", default=[], metavar="EFFECT", help="do this once more, although it has happened"
    )
    abandon.add_argument("--heir", required=True, help="username of who settles what is left")


def _add_person(parser: CommandParser) -> None:
    parser.add_argument("--reason", required=True, help="stays on the record")
    parser.add_argument("--by", default="", help="username: acts with this person's rights, in this person's name")


def _add_upkeep(verb: Verb) -> None:
    verb("sweep", "do once what is due: retries, lost leases and messages, expired requests, ends")
    verb("ticker", "sweep until TERM or Ctrl-C, beside workers that have no ticker of their own")
    rotate = verb("rotate", "seal anew, under the first of STATE_KEYS, what older keys have sealed")
    rotate.add_argument("--dry-run", action="store_true", help="say which key seals how much, and do nothing")
    cleanup = verb("cleanup", "remove runs that ended long ago, with all their rows and files, for good")
    cleanup.add_argument(
        "--older-than",
        type=options.span_or_moment,
        required=True,
        metavar="SPAN",
        help="those that ended so long ago, 400d 52w, or before a moment, 2030-01-31T12:00Z",
    )
    cleanup.add_argument("--workflow", default="", help="only runs of this workflow")
    cleanup.add_argument(
        "--state", default="", choices=[str(state) for state in sorted(RUN_ENDED)], help="only those that ended so"
    )
    cleanup.add_argument(
        "--archive",
        default="",
        metavar="ALIAS",
        help="keep each in this one of STORAGES first (default: DURABLEFLOWS['ARCHIVE_STORAGE'])",
    )
    cleanup.add_argument("--limit", type=options.many, default=None, help="at most so many")
    cleanup.add_argument("--dry-run", action="store_true", help="say how many would go and why others stay")


def _add_export(verb: Verb) -> None:
    export = verb("export-decisions", "print as CSV who decided what, on which facts, by which door, under which right")
    export.add_argument(
        "--what", choices=list(exports.TABLES), default="decisions", help="or the requests, or who looked at what"
    )
    for name, text in (("--since", "from then on"), ("--until", "before then")):
        export.add_argument(
            name, type=options.span_or_moment, default=None, help=f"{text}: 36h, 7d, or 2030-01-31T12:00Z"
        )
    export.add_argument("--workflow", default="", help="only runs of this workflow")
    export.add_argument("--output", default="-", metavar="FILE", help="instead of printing it")
    export.add_argument("--bom", action="store_true", help="begin with the mark by which spreadsheets know UTF-8")
    export.add_argument("--by", default="", help="username: only what this person may see")


def _add_proofs(verb: Verb) -> None:
    doctor = verb("doctor", "prove the promises from the rows; exit code 1 when one is broken")
    doctor.add_argument("run", nargs="?", default="", help="examine this run only")
    doctor.add_argument("--strict", action="store_true", help="exit code 1 for anything found")
    verify = verb("verify", "prove histories, seals and artifacts; exit code 1 when anything does not agree")
    verify.add_argument("run", nargs="?", default="", help="this run only")
    verify.add_argument(
        "--since",
        type=options.span_or_moment,
        default=None,
        help="only runs in which something has happened since: 36h, 7d, or 2030-01-31T12:00Z",
    )
    verb("health", "does what should go on by itself? exit code 1 when something is red")
    verb("metrics", "print the figures that monitors read")
    verb("gate", "before a deploy: could every live run go on under this code? exit code 1 when one could not")


def _add_printed(verb: Verb) -> None:
    graph = verb("graph", "print states and legal moves as Mermaid")
    graph.add_argument("--write-docs", action="store_true", help="write the printed pages of docs/reference instead")
    plan = verb("plan", "print what a workflow would do: steps, edges, effects, approvals, limits; nothing is run")
    plan.add_argument("--graph", action="store_true", help="print it as a Mermaid flowchart")
    plan.add_argument("workflow", help="the workflow's name")
    matrix = verb("matrix", "print what follows each failure: of one workflow, or in general")
    matrix.add_argument("workflow", nargs="?", default="", help="the workflow's name")
    for parser in (plan, matrix):
        parser.add_argument("--version", type=options.count, default=None, help="default: the highest")
