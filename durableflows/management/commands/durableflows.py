"""`manage.py durableflows VERB`: look at runs, act on them, examine them. Reads options and prints; `verbs` does it.

Exit codes: 0 it was done, 1 it was not (or the doctor found something broken), 2 it was asked wrongly.
"""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError

from durableflows.core.payload import unstorable_in
from durableflows.errors import DurableflowsError, InvalidState
from durableflows.explain_words import plain
from durableflows.management import parsers
from durableflows.management.naming import with_run_id
from durableflows.management.tables import Report, as_json
from durableflows.management.verbs import VERBS


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

        parsers.add_verbs(verb)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the verb; every expected failure is a message and an exit code, never a traceback."""
        given = Namespace(**options)
        try:
            _check_texts(options)
            report = VERBS[given.verb](with_run_id(given))
        except DurableflowsError as error:
            self._fail(given, error.code, str(error))
        except (DatabaseError, InterfaceError) as error:
            text = f"the database did not answer as it should (is it there, and migrated?): {error}"
            self._fail(given, "database", text)
        else:
            try:
                self._print(given, report)
                self.stdout.flush()
            except BrokenPipeError:  # who reads along, such as `head`, has enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if report.exit_code:
                sys.exit(report.exit_code)

    def _print(self, options: Namespace, report: Report) -> None:
        if report.pieces is not None:
            for piece in report.pieces:
                self.stdout.write(piece, ending="")
        elif options.json:
            self.stdout.write(json.dumps(report.data, default=as_json, indent=2))
        elif report.lines:
            self.stdout.write("\n".join(report.lines))

    def _fail(self, options: Namespace, code: str, text: str) -> None:
        if options.json:
            self.stdout.write(json.dumps({"error": {"code": code, "message": text}}, indent=2))
        raise CommandError(f"{code}: {plain(text, 2000)}", returncode=1)


def _check_texts(options: Mapping[str, Any]) -> None:
    """Raise InvalidState for an argument whose bytes are no text: no row has such a name, and no query takes it."""
    for name, value in options.items():
        # a reason has a message of its own
        if name != "reason" and isinstance(value, str) and (found := unstorable_in(value)) is not None:
            raise InvalidState(f"{name.replace('_', ' ')}: {found} is no text")
