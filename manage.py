#!/usr/bin/env python
"""Django's command line for the customer_ops project. Owns nothing: it names the settings and hands over."""

import os
import sys


def main() -> None:
    """Run one management command."""
    if sys.version_info < (3, 11):  # noqa: UP036 - said in words, before an import that an old Python cannot read
        sys.exit("Python %d.%d is too old: 3.11 or newer is needed" % sys.version_info[:2])  # noqa: UP031 - as old
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "customer_ops.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        raise ImportError("Django is not installed here: run `make install` and use .venv/bin/python") from error
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
