"""Measure the inbox with many open requests: queries and milliseconds of each of its pages, on a database of its own.

    python -m tests.services -- python -m tests.measure_inbox [--requests 10000]

Prints a line a page and ends with 1 when one of them takes 15 queries, or 300 ms in any turn. Not part of the
suite: its figures are this machine's.
"""

import argparse
import os
import sys

import django


def main() -> int:
    """Read the command line, then make the rows and look."""
    parser = argparse.ArgumentParser(description="Measure the inbox with many open requests.")
    parser.add_argument("--requests", type=int, default=10_000)
    count = parser.parse_args().requests
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()

    from tests.support.crowded_inbox import measured

    slow = False
    for one in measured(count):
        print(one, flush=True)
        slow |= one.is_slow
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
