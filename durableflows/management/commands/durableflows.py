"""`manage.py durableflows VERB`: look at runs, act on them, examine them. Reads options and prints; `verbs` does it.

Exit codes: 0 it was done, 1 it was not (or the doctor found something broken), 2 it was asked wrongly.
"""

import json
import sys
from argparse import ArgumentTypeError, Namespace
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError

from durableflows.core.states import RunState
from durableflows.errors import DurableflowsError
from durableflows.explain_words import plain
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
        _add_writers(verb)
        verb("sweep", "do once what is due: retries, lost leases and messages, expired requests, ends")
        verb("ticker", "sweep until TERM or Ctrl-C, beside workers that have no ticker of their own")
        doctor = verb("doctor", "prove the promises from the rows; exit code 1 when one is broken")
        doctor.add_argument("run", nargs="?", default="", help="examine this run only")
        doctor.add_argument("--strict", action="store_true", help="exit code 1 for anything found")
        verb("gate", "before a deploy: could every live run go on under this code? exit code 1 when one could not")
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


def _add_writers(verb: Any) -> None:
    cancel = verb("cancel", "ask for the end of a run; it ends when nothing of it is in doubt any more")
    retry = verb("retry", "let a parked run go on, or bring its retry forward")
    signal = verb("signal", "send a message to a run: to the step that waits for this name, or to the next that will")
    resolve = verb("resolve", "say what happened with an effect in doubt")
    cancel.add_argument("run", help="the run's id")
    retry.add_argument("run", help="the run's id")
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
    for parser in (cancel, retry, resolve, migrate):
        parser.add_argument("--reason", required=True, help="stays on the record")
        parser.add_argument("--by", default="", help="username: acts with this person's rights, in this person's name")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"{plain(text, 40)!r} is not a whole number from 0")
    return int(text[:18])


def _limit(text: str) -> int:
    if not 1 <= (number := _count(text)) <= 1000:
        raise ArgumentTypeError(f"{number} is not between 1 and 1000")
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
