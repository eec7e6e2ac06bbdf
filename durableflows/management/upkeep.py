"""Verbs that do what is due, beside the workers or in their place."""

import logging
from argparse import Namespace

from durableflows import clock
from durableflows.explain_words import plain
from durableflows.management.tables import Report
from durableflows.services import sweeps
from durableflows.transactions import is_away

logger = logging.getLogger("durableflows")


def sweep(options: Namespace) -> Report:
    """Do once what is due. Never calls other workers dead: one look cannot tell. Fails when a sweep failed."""
    done: dict[str, int] = {}
    failed: dict[str, str] = {}
    for name, job in sweeps.JOBS.items():
        if name == "stale workers":
            continue
        try:
            done[name] = job(clock.now())
        except Exception as error:  # the other sweeps still run; the exit code says that one did not
            if is_away(error):
                raise
            logger.exception("the sweep of %s failed", name)
            failed[name] = plain(f"{type(error).__name__}: {error}")
    lines = [f"{name}: {count}" for name, count in done.items()]
    lines += [f"{name}: failed, {text}" for name, text in failed.items()]
    return Report({"moved": done, "failed": failed}, lines, 1 if failed else 0)


def ticker(options: Namespace) -> Report:
    """Sweep until TERM or Ctrl-C."""
    from durableflows import ticker as ticking

    ticking.run_forever()
    return Report({}, [])
