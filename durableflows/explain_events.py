"""A sentence for each event of a run's history. Called by `explain` alone. Reads no rows, runs no user code."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime

from durableflows.core.states import WORDS
from durableflows.explain_words import Fact, Kind, Said, moment, plain, value_words, when


def say(fact: Fact) -> Said:
    """One event in words. An event that this release does not know is named, never dropped."""
    teller = _TELLERS.get(fact.kind)
    return teller(fact) if teller else (plain(fact.kind.replace(".", " ").replace("_", " ")), "note")


def _with(text: str, more: str, *, between: str = ": ") -> str:
    return f"{text}{between}{more}" if more else text


def _next_of(fact: Fact) -> str:
    following = fact.data.get("next")
    return plain(", ".join(map(str, following))) if isinstance(following, list) else ""


def _at_of(fact: Fact) -> str:
    try:
        return when(datetime.fromisoformat(str(fact.data["wake_at"])), fact.now)
    except (KeyError, ValueError):
        return ""


def _started(fact: Fact) -> Said:
    key = _with("", fact.text("key"), between=", ")
    return f"Started{fact.by}: {fact.text('workflow')}, version {fact.text('version')}{key}", "done"


def _ended(fact: Fact) -> Said:
    state = fact.text("state")
    is_good = state in ("SUCCEEDED", "CANCELLED", "COMPENSATED")
    text = _with(f"The run ended: {WORDS.get(state, state)}", fact.text("error"))
    text = _with(text, _listed(fact, "left"), between="; not undone: ")
    return _with(text, _listed(fact, "not_reversible"), between="; not reversible: "), "done" if is_good else "problem"


def _ready(fact: Fact) -> Said:
    if "state" not in fact.data:  # an arrival; only a repeated one is news
        visit = fact.data.get("visit")
        return (f"{fact.step} comes up again", "note") if isinstance(visit, int) and visit > 1 else None
    if fact.data.get("error") or not fact.data.get("reason"):  # `run.parked` beside it says why
        return None
    return f"{fact.step} goes on: {fact.text('reason')}", "note"


def _claimed(fact: Fact) -> Said:
    return f"{fact.step} began, attempt {fact.text('attempt')}, on {fact.text('worker') or 'a worker'}", "done"


def _succeeded(fact: Fact) -> Said:
    return _with(f"{fact.step} is done", _next_of(fact), between="; next: "), "done"


def _retry(fact: Fact) -> Said:
    why = fact.text("reason") or fact.text("error")
    return f"{_with(f'{fact.step} did not work', why)}; it is tried again {_at_of(fact)}".rstrip(), "problem"


def _failed(fact: Fact) -> Said:
    text = _with(f"{fact.step} failed for good", fact.text("error") or fact.text("reason"))
    return _with(text, _next_of(fact), between="; next: "), "problem"


def _in_doubt(fact: Fact) -> Said:
    return _with(f"{fact.step}: it is not known what happened", fact.text("reason")), "unknown"


def _dispatched(fact: Fact) -> Said:
    send = fact.data.get("send")
    again = f" again (send {send})" if isinstance(send, int) and send > 1 else ""
    to = f" to {plain(fact.provider)}" if fact.provider else ""
    under_way = "; its answer is not here yet" if fact.is_open else ""
    return f"{_effect(fact)} was sent{to}{again}{under_way}", "unknown" if fact.is_open else "done"


def _recorded(fact: Fact) -> Said:
    name, by = _effect(fact), _told_by(fact)
    said: dict[str, Said] = {
        "CONFIRMED": (f"{name} is confirmed{by}{_reference(fact)}", "certain"),
        "REJECTED": (f"{name} {_no(fact)}{by}: it did not happen", "certain"),
        "REVERSED": (f"{name} had happened, and was taken back{by}", "problem"),
        "ACCEPTED": (f"{name} was accepted by the provider{by}, which is not done with it", "waiting"),
        "PLANNED": (f"{name} was not done: {fact.text('answer')}", "certain"),
        "UNKNOWN": (f"{name} is in doubt, it may have happened: {_doubt(fact)}", "unknown"),
    }
    state = fact.text("state")
    return said.get(state, (f"{name}: {fact.text('answer')}; it is {state}", "note"))


def _told_by(fact: Fact) -> str:
    """Where the answer comes from, when it is not the answer to a request."""
    ways = {"lookup": " when it was looked up", "event": f" by an event of {plain(fact.provider) or 'the provider'}"}
    return ways.get(fact.text("by"), "")


def _no(fact: Fact) -> str:
    return "is reported as failed" if fact.data.get("by") == "event" else "was refused by the provider"


def _event(fact: Fact) -> Said:
    if fact.data.get("verdict") != "older":  # `effect.recorded` or `effect.alert` beside it says more, or it is a copy
        return None
    provider = plain(fact.provider) or "the provider"
    return _with(f"{_effect(fact)}: an event of {provider} came late", fact.text("text")), "note"


def _doubt(fact: Fact) -> str:
    answers = {"unknown": "its answer was lost", "key in use": "the provider still works on an earlier request"}
    return answers.get(fact.text("answer"), "an earlier request of it is unexplained")


def _resolved(fact: Fact) -> Said:
    who = fact.who or "Somebody with access to the server"
    verdicts: dict[str, Said] = {
        "happened": (f"{who} says that {_effect(fact)} happened", "certain"),
        "did_not_happen": (f"{who} says that {_effect(fact)} did not happen", "certain"),
        "undone": (f"{who} says that {_effect(fact)} was undone by hand", "certain"),
        "repeat": (f"{who} wants {_effect(fact)}, which has happened, to be done once more", "note"),
    }
    if fact.text("verdict") == "seen":
        return f"{who} has looked at what contradicts {_effect(fact)}: {fact.text('reason')}", "note"
    asked: tuple[str, Kind] = (f"{who} wants {_effect(fact)} to be looked up again", "note")
    text, kind = verdicts.get(fact.text("verdict")) or asked
    return _with(text, fact.text("reason")), kind


def _effect(fact: Fact) -> str:
    name, operation = fact.text("effect"), fact.text("operation")
    return name if operation in ("", name) else f"{name} ({operation})"


def _reference(fact: Fact) -> str:
    by = plain(fact.provider) or "the provider"
    return f"; {by} calls it {fact.reference}" if fact.reference else ""


def _answered(fact: Fact) -> Said:
    word = "Approved" if fact.data.get("verdict") == "approve" else "Rejected"
    lender, although = fact.text("for"), fact.text("although")
    who = f"{fact.by}{f' for {lender}' if lender else ''}{f', who {although}' if although else ''}"
    return _with(f"{word}{who}{_edits(fact)}", plain(fact.comment)), "done"


def _edits(fact: Fact) -> str:
    """What was approved instead of what was asked, as far as there are values."""
    edits = fact.data.get("edits")
    given = edits if isinstance(edits, dict) else {}
    changed = {name: value for name, value in given.items() if value not in (None, "")}
    said = [f"{name.replace('_', ' ')}: {value_words(value)}" for name, value in changed.items()]
    return f" with changes ({plain(', '.join(said))})" if said else ""


def _request_closed(fact: Fact) -> Said:
    if fact.data.get("state") in ("APPROVED", "REJECTED"):  # the answer itself is a line
        return None
    if fact.data.get("state") == "EXPIRED":
        then = fact.text("then")
        does = f"the run goes on with {then}" if then else "the request was rejected by itself"
        return f"Nobody answered in time: {does}", "problem"
    return _with("The request was closed", fact.text("reason")), "note"


def _asked_of(text: str, fact: Fact) -> str:
    """Who is asked: a bare permission, or words for people, groups and names."""
    asked = fact.text("asked")
    is_permission = " " not in asked and "." in asked
    return _with(f"{text} of those with the right", asked) if is_permission else f"{text} of {asked}"


def _escalated(fact: Fact) -> Said:
    return _asked_of("Nobody answered in time; now asked", fact), "waiting"


def _not_needed(fact: Fact) -> Said:
    return _with(f"Nobody had to be asked, {fact.text('band')}", fact.text("title")), "done"


def _unanswerable(fact: Fact) -> Said:
    return f"{_asked_of('Nobody can answer this: it is asked', fact)}, and nobody active beside who asked is", "problem"


def _assigned(fact: Fact) -> Said:
    return _with(f"The request was handed to {fact.text('to')}{fact.by}", fact.text("reason")), "waiting"


def _facts_changed(fact: Fact) -> Said:
    changed = fact.data.get("changed")
    names = plain(", ".join(map(str, changed))) if isinstance(changed, list) else ""
    return f"{_with('The facts of the request changed', names)}; answers to the old facts do not count", "problem"


def _open_lookup(fact: Fact) -> Said:
    return _with(f"{_effect(fact)}: lookup {fact.text('lookup')} could not tell", fact.text("reason")), "unknown"


def _opened(fact: Fact) -> Said:
    limit, count = fact.data.get("limit"), fact.data.get("items")
    at_a_time = f", {limit} at a time" if isinstance(limit, int) else ""
    return f"{fact.text('step')} begins for {count} item{'' if count == 1 else 's'}{at_a_time}", "done"


def _held(fact: Fact) -> Said:
    return f"{fact.step} {fact.text('reason')}", "waiting"


def _provider(word: str, kind: Kind) -> Callable[[Fact], Said]:
    def tell(fact: Fact) -> Said:
        return _with(f"{fact.text('provider')} is {word}", fact.text("reason")), kind

    return tell


def _signal(fact: Fact) -> Said:
    used = f", for {fact.step}" if fact.step else "; it is kept until a step waits for it"
    return f"The signal {fact.text('signal')} came{fact.by}{used}", "done"


def _waits(fact: Fact) -> Said:
    text = _with(f"{fact.step} waits", fact.text("reason"), between=" for " if fact.data.get("on") else ": ")
    return f"{text}, {_at_of(fact)}" if _at_of(fact) else text, "waiting"


def _extended(fact: Fact) -> Said:
    budget = fact.data.get("budget")
    parts = [f"{plain(name)} {plain(limit)}" for name, limit in budget.items()] if isinstance(budget, dict) else []
    with suppress(KeyError, ValueError):
        parts.insert(0, f"until {moment(datetime.fromisoformat(str(fact.data['deadline_at'])), fact.now)}")
    return _with(f"Extended{fact.by} ({', '.join(parts)})", fact.text("reason")), "done"


def _edited(fact: Fact) -> Said:
    changes = fact.data.get("changes")
    names = plain(", ".join(map(str, changes))) if isinstance(changes, dict) else ""
    return _with(f"State edited{fact.by} ({names})", fact.text("reason")), "note"


def _redriven(fact: Fact) -> Said:
    return _with(f"Sent back to {fact.step}{fact.by}", fact.text("reason")), "note"


def _abandoned(fact: Fact) -> Said:
    left = fact.data.get("open")
    names = plain(", ".join(map(str, left))) if isinstance(left, list) else ""
    heir = fact.text("heir")
    inherits = f"; {heir} inherits what is open: {names}" if names else f"; nothing was open for {heir} to inherit"
    return f"{_with(f'Abandoned{fact.by}', fact.text('reason'))}{inherits}", "problem"


def _simple(template: str, kind: Kind, name: str = "reason") -> Callable[[Fact], Said]:
    def tell(fact: Fact) -> Said:
        text = template.replace("{step}", fact.step).replace("{effect}", _effect(fact)).replace("{by}", fact.by)
        return _with(text, fact.text(name)), kind

    return tell


def _undo(template: str, kind: Kind) -> Callable[[Fact], Said]:
    def tell(fact: Fact) -> Said:
        return _with(template.format(_effect(fact), fact.text("of") or fact.step), fact.text("error")), kind

    return tell


def _undo_began(fact: Fact) -> Said:
    stays = _listed(fact, "not_reversible")
    text = f"Nothing else of it is under way any more: what it did is undone, newest first: {_listed(fact, 'undoes')}"
    return _with(text, stays, between="; not reversible: "), "note"


def _listed(fact: Fact, name: str) -> str:
    given = fact.data.get(name)
    return plain(", ".join(map(str, given))) if isinstance(given, list) else ""


_TELLERS: Mapping[str, Callable[[Fact], Said]] = {
    "run.started": _started,
    "run.ended": _ended,
    "run.parked": _simple("Stopped until somebody lets it go on", "problem", "detail"),
    "run.ending": _simple("The run is ending", "note", "detail"),
    "run.cleanup_began": _simple("Nothing else of it is under way any more: it cleans up", "note", "step"),
    "run.cleanup_failed": _simple("The clean-up was not done", "problem", "error"),
    "run.undo_began": _undo_began,
    "run.undo_given_up": _simple("Undoing was given up", "problem", "error"),
    "run.compensate_asked": _simple("Undoing all of it was asked for{by}", "note"),
    "effect.undo_began": _undo("{0} of {1} is undone next", "note"),
    "effect.undone": _undo("{0} of {1} is undone", "certain"),
    "effect.undo_failed": _undo("{0} of {1} could not be undone", "problem"),
    "run.cancel_asked": _simple("Cancel was asked for{by}", "note"),
    "run.paused": _simple("Paused{by}", "note"),
    "run.resumed": _simple("Resumed{by}", "done"),
    "run.extended": _extended,
    "run.edited": _edited,
    "run.redriven": _redriven,
    "run.abandoned": _abandoned,
    "run.retried": _simple("Set going again{by}", "note"),
    "run.resealed": lambda fact: None,  # a key was rotated: nothing of the run has changed
    "run.note": _simple("Note", "note", "text"),
    "step.ready": _ready,
    "step.claimed": _claimed,
    "step.succeeded": _succeeded,
    "step.retry_scheduled": _retry,
    "step.failed": _failed,
    "step.in_doubt": _in_doubt,
    "step.worker_lost": _simple("{step} lost its worker", "problem"),
    "step.waiting": _waits,
    "step.held": _held,
    "provider.paused": _provider("paused", "problem"),
    "provider.left_alone": _provider("left alone", "problem"),
    "provider.resumed": _provider("back", "done"),
    "step.asked": lambda fact: None,  # `approval.asked` beside it says what is asked
    "step.reopened": _simple("{step} stands where it stood", "note", ""),
    "step.cancelled": _simple("{step} was cancelled", "note", ""),
    "step.needs_person": _simple("{step}: a person is needed", "problem"),
    "approval.asked": _simple("A decision was asked for", "waiting", "title"),
    "approval.answered": _answered,
    "approval.closed": _request_closed,
    "approval.facts_changed": _facts_changed,
    "approval.escalated": _escalated,
    "approval.not_needed": _not_needed,
    "approval.unanswerable": _unanswerable,
    "approval.answerable": _simple("There is somebody again who can answer", "note", ""),
    "approval.assigned": _assigned,
    "approval.question": _simple("A question was asked{by}", "waiting", "text"),
    "approval.reply": _simple("The question was answered{by}", "note", "text"),
    "approval.withdrawn": _simple("Withdrawn{by}", "note"),
    "effect.dispatched": _dispatched,
    "effect.recorded": _recorded,
    "effect.absent": _simple("{effect} was looked up and not found: it did not happen", "certain", ""),
    "effect.audited": _simple("{effect} was looked up once more: it did not happen", "certain", ""),
    "effect.resolved": _resolved,
    "effect.event": _event,
    "effect.alert": _simple("{effect} needs a look", "problem", "text"),
    "each.opened": _opened,
    "child.started": _simple("{step}: a run was started", "done", "workflow"),
    "model.called": lambda fact: None,  # many, and nothing outside changes by them
    "signal.received": _signal,
    "lookup.open": _open_lookup,
    "lookup.stale": _simple("{effect}: a lookup came too late to count", "note", "answer"),
}
