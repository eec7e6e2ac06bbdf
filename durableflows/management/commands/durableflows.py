"""`manage.py durableflows VERB`: look at runs, act on them, examine them. Reads options and prints; `verbs` does it.

Exit codes: 0 it was done, 1 it was not (or the doctor found something broken), 2 it was asked wrongly.
"""

import json
import sys
from argparse import ArgumentTypeError, Namespace
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError
from django.utils import timezone

from durableflows.core.states import RunState
from durableflows.errors import DurableflowsError
from durableflows.explain_words import plain
from durableflows.management import faulttests
from durableflows.management.tables import Report, as_json
from durableflows.management.verbs import VERBS
from durableflows.services.reconcile import VERDICTS


class Command(BaseCommand):
    """One command; each verb is a function of `management.verbs`."""

    help = "Look at durable workflow runs, act on them, and prove from the rows that their promises hold."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the verbs and their options."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

        def verb(name: str, text: str) -> CommandParser:
            added: CommandParser = verbs.add_parser(name, help=text, description=text)
            added.add_argument("--json", action="store_true", help="print JSON, also for errors")
            return added

        _add_readers(verb)
        _add_operators(verb)
        _add_writers(verb)
        verb("sweep", "do once what is due: retries, lost leases and messages, expired requests, ends")
        verb("ticker", "sweep until TERM or Ctrl-C, beside workers that have no ticker of their own")
        doctor = verb("doctor", "prove the promises from the rows; exit code 1 when one is broken")
        doctor.add_argument("run", nargs="?", default="", help="examine this run only")
        doctor.add_argument("--strict", action="store_true", help="exit code 1 for anything found")
        verb("gate", "before a deploy: could every live run go on under this code? exit code 1 when one could not")
        _add_faulttest(verb)
        graph = verb("graph", "print states and legal moves as Mermaid")
        graph.add_argument(
            "--write-docs", action="store_true", help="write the printed pages of docs/reference instead"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the verb; every expected failure is a message and an exit code, never a traceback."""
        given = Namespace(**options)
        try:
            report = VERBS[given.verb](given)
        except DurableflowsError as error:
            self._fail(given, error.code, str(error))
        except (DatabaseError, InterfaceError) as error:
            text = f"the database did not answer as it should (is it there, and migrated?): {error}"
            self._fail(given, "database", text)
        else:
            self._print(given, report)
            if report.exit_code:
                sys.exit(report.exit_code)

    def _print(self, options: Namespace, report: Report) -> None:
        if options.json:
            self.stdout.write(json.dumps(report.data, default=as_json, indent=2))
        elif report.lines:
            self.stdout.write("\n".join(report.lines))

    def _fail(self, options: Namespace, code: str, text: str) -> None:
        if options.json:
            self.stdout.write(json.dumps({"error": {"code": code, "message": text}}, indent=2))
        raise CommandError(f"{code}: {plain(text, 2000)}", returncode=1)


def _add_readers(verb: Any) -> None:
    runs = verb("list", "runs, newest first")
    runs.add_argument("--workflow", default="", help="only runs of this workflow")
    runs.add_argument("--state", default="", choices=[str(state) for state in RunState], help="only in this state")
    runs.add_argument("--limit", type=_limit, default=50, help="at most so many (default 50, at most 1000)")
    for name, text in (("show", "one run with its rows"), ("explain", "one run in plain sentences")):
        verb(name, text).add_argument("run", help="the run's id")


def _add_faulttest(verb: Any) -> None:
    played = verb(
        "faulttest", "play a workflow through crashes, lost messages and faulty providers, in a test database"
    )
    played.add_argument("name", help="a workflow, or one scenario of a faulttests.py")
    played.add_argument("--schedules", type=_many, default=500, help="how many for each scenario (default 500)")
    played.add_argument("--seed", type=_count, default=1, help="of the schedules that are drawn (default 1)")
    played.add_argument("--replay", default="", help="one schedule, as it was printed, instead of many")
    played.add_argument(
        "--database",
        choices=[faulttests.TEST, faulttests.MEMORY],
        default=faulttests.TEST,
        help="a test database beside the project's own, or SQLite in memory, which is quicker",
    )
    played.add_argument("--processes", type=_count, default=0, help="play side by side (default: one a processor)")


def _add_writers(verb: Any) -> None:
    signal = verb("signal", "send a message to a run: to the step that waits for this name, or to the next that will")
    resolve = verb("resolve", "say what happened with an effect in doubt")
    signal.add_argument("run", help="the run's id")
    signal.add_argument("name", help="as wait_for(...) names it")
    signal.add_argument("--payload", type=_json, default=None, help='as JSON: {"amount": 5}')
    signal.add_argument("--key", default="", help="the same key again is dropped")
    signal.add_argument("--by", default="", help="username: acts with this person's rights, in this person's name")
    resolve.add_argument("effect", help="the effect's id, as `show` prints it")
    resolve.add_argument("--verdict", required=True, choices=VERDICTS)
    resolve.add_argument("--row-version", required=True, type=_count, help="as `show` printed it: what you decided on")
    resolve.add_argument("--receipt", type=_receipt, help='what the provider says, as JSON: {"id": "re_17"}')
    migrate = verb("migrate", "let a run, or all of a workflow that can, go on under a newer version")
    migrate.add_argument("run", nargs="?", default="", help="the run's id")
    migrate.add_argument("--workflow", default="", help="all of its live runs that declared migrations lead further")
    migrate.add_argument("--to", dest="target", type=_count, help="default: the highest that can be reached")
    _add_person(resolve)
    _add_person(migrate)


OPERATORS = {
    "cancel": "ask for the end of a run; it ends when nothing of it is in doubt any more",
    "retry": "let a parked run go on, or bring its retry forward",
    "pause": "let a run stand still: what is under way ends, and nothing more begins",
    "resume": "let a paused run go on",
    "extend": "give a run more time or budget; one that these have ended goes on where it stood",
    "redrive": "let a failed or parked run go on from an earlier step; what has happened is not done again",
    "abandon": "end a run over what is open, and name who settles that",
}


def _add_operators(verb: Any) -> None:
    parsers = {name: verb(name, text) for name, text in OPERATORS.items()}
    for parser in parsers.values():
        parser.add_argument("run", help="the run's id")
        parser.add_argument("--dry-run", action="store_true", help="say what it would do, and do nothing")
        _add_person(parser)
    extend, redrive, abandon = parsers["extend"], parsers["redrive"], parsers["abandon"]
    extend.add_argument(
        "--deadline", type=_time, default=None, help="so much more, 90m 36h 3d 2w, or until 2030-01-31T12:00Z"
    )
    extend.add_argument(
        "--budget", type=_budget, action="append", default=[], metavar="NAME=MORE", help="tool_calls=5; idle=SECONDS"
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


UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _time(text: str) -> timedelta | datetime:
    if text.isascii() and text[:-1].isdigit() and text[-1:] in UNITS and len(text) < 8:
        return timedelta(**{UNITS[text[-1]]: int(text[:-1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{plain(text, 40)!r} is neither 90m, 36h, 3d, 2w nor 2030-01-31T12:00Z") from None
    return moment if moment.tzinfo else timezone.make_aware(moment)


def _budget(text: str) -> tuple[str, object]:
    name, _, more = text.partition("=")
    try:
        number = Decimal(more)
    except InvalidOperation:
        raise ArgumentTypeError(f"{plain(text, 40)!r} is not NAME=MORE, such as tool_calls=5") from None
    return name, int(number) if number.is_finite() and number == number.to_integral_value() else number


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"{plain(text, 40)!r} is not a whole number from 0")
    return int(text[:18])


def _limit(text: str) -> int:
    if not 1 <= (number := _count(text)) <= 1000:
        raise ArgumentTypeError(f"{number} is not between 1 and 1000")
    return number


def _many(text: str) -> int:
    if not 1 <= (number := _count(text)) <= 1_000_000:
        raise ArgumentTypeError(f"{number} is not between 1 and 1000000")
    return number


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ArgumentTypeError(f"this is not JSON: {error}") from None


def _receipt(text: str) -> dict[str, Any]:
    value = _json(text)
    if not isinstance(value, dict) or not value:
        raise ArgumentTypeError('the receipt must be a JSON object, such as {"id": "re_17"}')
    return value


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is not JSON")
