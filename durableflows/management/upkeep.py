"""Verbs that do what is due, beside the workers or in their place."""

from argparse import Namespace

from durableflows import clock, integrity
from durableflows.conf import settings
from durableflows.core import log_lines
from durableflows.explain_words import plain
from durableflows.management import progress, tables
from durableflows.management.tables import Report, Row
from durableflows.services import rotation, sweeps
from durableflows.transactions import is_away

logger = log_lines.logger("durableflows")

CHUNK = 200


def sweep(options: Namespace) -> Report:
    """Do once what is due. Never calls other workers dead: one look cannot tell. Fails when a sweep failed."""
    done: dict[str, int] = {}
    failed: dict[str, str] = {}
    for name, do in sweeps.SWEEPS.items():
        if name == "stale workers":
            continue
        try:
            done[name] = do(clock.now())
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


def rotate(options: Namespace) -> Report:
    """Seal anew, under the first key, what others have sealed. Fails when something was not."""
    if options.dry_run:
        return _keys({"due": (due := rotation.due().count())}, [f"nothing was done; {due:,} runs would be sealed anew"])
    done, failed, total = 0, list[Row](), rotation.due().count()
    tell = progress.shown("runs")
    for run_id in rotation.due().values_list("pk", flat=True).iterator(chunk_size=CHUNK):
        try:
            done += rotation.rotate(run_id)
        except Exception as error:  # noqa: BLE001 - the others are sealed anew all the same, and the exit code tells
            failed.append(tables.refusal(run_id, error))
        if tell is not None:
            tell(min(done + len(failed), total), total)
    lines = [f"{done:,} runs are sealed anew, {len(failed):,} are not"]
    lines += tables.refusals(failed)
    return _keys({"rotated": done, "failed": failed}, lines, 1 if failed else 0)


def _keys(data: dict[str, object], lines: list[str], exit_code: int = 0) -> Report:
    """Which keys seal how much, and which may be taken away."""
    first, _ = integrity.sealing_key()
    used = rotation.keys_in_use()
    idle = [name for name in settings().state_keys() if name != first and name not in used]
    gone = [name for name in sorted(used) if name not in settings().state_keys()]
    lines += [f"key {name!r} seals {count:,} states and inputs" for name, count in sorted(used.items())]
    lines += [f"key {name!r} is gone: what it seals is not sealed anew; put it back behind the first" for name in gone]
    lines += [f"key {name!r} seals nothing: it may be taken away" for name in idle]
    return Report({"key": first, **data, "keys": dict(used), "idle": idle, "gone": gone}, lines, exit_code)
