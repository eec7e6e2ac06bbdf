"""Measure the console with a million runs: queries and milliseconds of each of its pages, on a database of its own.

    python -m tests.services -- python -m tests.measure_console [--runs 1000000] [--events 5] [--long 5000]

Prints a line a page and ends with 1 when one of them takes 15 queries or a second. Not part of the suite: its figures
are this machine's.
"""

import argparse
import os
import sys

import django


def main() -> int:
    """Read the command line, then make the rows and look."""
    parser = argparse.ArgumentParser(description="Measure the console with a million runs.")
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=5, help="events of each run")
    parser.add_argument("--long", type=int, default=5_000, help="events of one run")
    asked = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()

    from tests.support.crowded_console import measured

    slow = False
    for one in measured(asked.runs, asked.events, asked.long):
        print(one, flush=True)
        slow |= one.is_slow
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
