"""What operators do to a run, and what it would do: `--dry-run` prints the preview and changes nothing."""

import getpass
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

from durableflows import accounts, api
from durableflows.core.free_text import is_seen
from durableflows.errors import InvalidState, NotFoundError
from durableflows.explain_words import plain
from durableflows.management import tables
from durableflows.management.tables import Report, section
from durableflows.models import WorkflowRun


def cancel(options: Namespace) -> Report:
    """Ask for the end of a run."""
    run = api.cancel(options.run, **_by(options))
    return changed(
        run,
        "cancelled"
        if run.ended_at
        else "cancel asked; it ends when its open effects are settled and its clean-up is done",
    )


def compensate(options: Namespace) -> Report:
    """Undo what a run did, newest first, and end it."""
    run = api.compensate(options.run, **_by(options))
    return changed(run, "undone" if run.ended_at else "undoing asked; what is in doubt is settled first")


def retry(options: Namespace) -> Report:
    """Let a parked run go on, or bring a retry forward."""
    return changed(api.retry(options.run, **_by(options)), "goes on")


def pause(options: Namespace) -> Report:
    """Let a run stand still."""
    return changed(api.pause(options.run, **_by(options)), "paused; what is under way ends first")


def resume(options: Namespace) -> Report:
    """Let a paused run go on."""
    return changed(api.resume(options.run, **_by(options)), "goes on")


def extend(options: Namespace) -> Report:
    """Give a run more time or budget."""
    run = api.extend(options.run, **_by(options), **_arguments(options))
    return changed(run, f"extended until {tables.local(run.deadline_at)}")


def edit(options: Namespace) -> Report:
    """Change fields of a run's state."""
    run = api.edit(options.run, **_by(options), **_arguments(options))
    return Report(tables.of_run_alone(run), [f"run {run.pk}: at checkpoint {run.checkpoint_sequence} ({run.word})"])


def redrive(options: Namespace) -> Report:
    """Let a run go on from an earlier step."""
    return changed(api.redrive(options.run, **_by(options), **_arguments(options)), f"goes on from {options.step}")


def abandon(options: Namespace) -> Report:
    """End a run over what is open, and name who settles it."""
    run = api.abandon(options.run, **_by(options), **_arguments(options))
    return changed(run, f"abandoned; {plain(run.heir_name)} settles what is open")


VERBS: Mapping[str, Callable[[Namespace], Report]] = {
    verb.__name__: verb for verb in (cancel, compensate, retry, pause, resume, extend, edit, redrive, abandon)
}


def with_preview(options: Namespace) -> Report:
    """Do the verb, or with `--dry-run` only say what it would do; exit code 1 when it would be refused."""
    if not options.dry_run:
        return VERBS[options.verb](options)
    return previewed(options, _arguments(options))


def previewed(options: Namespace, arguments: Mapping[str, Any]) -> Report:
    """Say what the verb would do; exit code 1 when it would be refused."""
    said = api.preview(options.verb, options.run, by=person(options.by), **arguments)
    parts = {"changes": said.changes, "closes": said.closes, "begins": said.begins, "keeps": said.keeps}
    parts |= {"repeats": said.repeats, "undoes": said.undoes, "stays": said.stays}
    parts |= {"confirmed": said.confirmed, "unknown": said.unknown}
    money = {name: [str(one) for one in amounts] for name, amounts in said.money.items()}
    data = {"verb": said.verb, "run": said.run_id, "refused": said.refused, **parts, "money": money}
    lines = [f"nothing was done; {said.verb} would be {'refused: ' + plain(said.refused) if said.refused else 'done'}"]
    for name, texts in parts.items():
        total = f" ({', '.join(money[name])})" if money.get(name) else ""
        lines += section(f"{_TITLES[name]}{total}", [plain(text) for text in texts])
    return Report(data, lines, 1 if said.refused else 0)


_TITLES = {
    "changes": "changes",
    "closes": "closes",
    "begins": "goes on with",
    "keeps": "keeps what it was given or refused",
    "repeats": "does once more, although it has happened",
    "undoes": "undoes, newest first",
    "stays": "has happened, and is not reversible",
    "confirmed": "has happened, and is not done again",
    "unknown": "may have happened, and is not settled",
}


def _by(options: Namespace) -> dict[str, Any]:
    return {"by": person(options.by), "reason": reason(options)}


_GIVEN = ("deadline", "step", "item", "repeat", "checkpoint")


def _arguments(options: Namespace) -> dict[str, Any]:
    """What the verb is given beside the run, the person and the reason."""
    given = {name: getattr(options, name) for name in _GIVEN if name in options}
    if "changes" in options:
        given["changes"] = dict(options.changes)
        if len(given["changes"]) < len(options.changes):
            raise InvalidState("--set: give each field one value")
    if "budget" in options:
        given["budget"] = dict(options.budget)
    if "heir" in options:
        given["heir"] = person(options.heir)
    return given


def changed(run: WorkflowRun, what: str) -> Report:
    """The run after a verb, in a line."""
    return Report(tables.of_run(run), [f"run {run.pk}: {what} ({run.word})"])


def person(name: str) -> Any:
    """The user in whose name it is done; None: who may run commands on the server is trusted."""
    if not name:
        return None
    person = accounts.named(name)
    if person is None or not person.is_active:
        raise NotFoundError(f"there is no active user {plain(name)!r}")
    return person


def reason(options: Namespace) -> str:
    """The given reason; without a user it also keeps who was logged in on the server."""
    reason = str(options.reason).strip()
    if not is_seen(reason) or "\x00" in reason:
        raise InvalidState("--reason needs words: it stays on the record")
    if options.by:
        return reason
    try:
        return f"{reason} (command line, {getpass.getuser()})"
    except (KeyError, OSError):
        return f"{reason} (command line)"
