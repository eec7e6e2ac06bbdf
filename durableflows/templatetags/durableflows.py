"""Template filters and tags: `{{ order.total|money }}`, `{% run_progress order %}`. Pages of the engine and of others
load it. Owns display of values.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import template
from django.db.models import Model
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timesince import timesince

from durableflows import clock, explain_words
from durableflows.core import disguise
from durableflows.core.money import Money
from durableflows.core.payload import same
from durableflows.errors import TenantsUnknown
from durableflows.explain import standing_of
from durableflows.models import ApprovalDecision, WorkflowRun
from durableflows.selectors import runs_of

register = template.Library()

NON_BREAKING_SPACE = "\u00a0"
LONGEST_SHOWN = 20_000
RUNS_SHOWN = 3
# What a person should look at, what is done, what only waits: the colour of a state. Its word says it as well.
TONES = {
    "good": ("SUCCEEDED", "CONFIRMED", "APPROVED", "COMPENSATED", "UNDONE", "done", "approve"),
    "bad": (
        *("FAILED", "FAILED_PERMANENT", "COMPENSATION_FAILED", "EXHAUSTED_BUDGET", "DEADLINE_EXCEEDED", "UNDO_FAILED"),
        *("REJECTED", "EXPIRED", "reject", "failed", "lost", "REVERSED"),
    ),
    "look": ("UNKNOWN", "NEEDS_RECONCILIATION", "PARKED", "RETRY_SCHEDULED", "DISPATCHED", "ACCEPTED", "unknown"),
}


@register.filter
def money(value: object) -> str:
    """Show Money as people read it: "$1,234.50"; nothing for None. Takes {"amount_minor", "currency"} as well."""
    amount = value if isinstance(value, Money) else explain_words.money_of(value)
    if amount is not None:
        return amount.display.replace(" ", NON_BREAKING_SPACE)
    return "" if value is None else str(value)


@register.filter
def fact(value: object) -> str:
    """Show one stored fact as plain text: money as "USD 1,600.00", lists item by item. Never marks it as safe."""
    return explain_words.value_words(value)


@register.filter
def changed(decision: ApprovalDecision) -> list[tuple[str, str]]:
    """What an approver has changed: the name of each field as the form had it, and its value in words."""
    form = {field["name"]: field for field in decision.request.edit_schema}
    names = [*(name for name in form if name in decision.edits), *(name for name in decision.edits if name not in form)]
    others = [name for name in names if name not in form or not same(form[name]["now"], decision.edits[name])]
    return [(form[name]["label"] if name in form else label(name), fact(decision.edits[name])) for name in others]


@register.filter
def coded(text: str) -> SafeString:
    """Show what stands between backticks in a sentence of ours as code."""
    parts = (format_html("<code>{}</code>", one) if index % 2 else one for index, one in enumerate(text.split("`")))
    return format_html_join("", "{}", ((one,) for one in parts))


@register.filter
def clip(text: str) -> str:
    """Cut what is too long for any page, and say so."""
    if len(text) <= LONGEST_SHOWN:
        return text
    return f"{text[:LONGEST_SHOWN]} … ({len(text) - LONGEST_SHOWN} more characters are not shown)"


@register.filter
def state(value: object, model: str = "") -> str:
    """Say a state in a person's words: `{{ effect.state|state:"sideeffect" }}`."""
    return explain_words.state_words(value, model)


@register.filter
def tone(value: object) -> str:
    """The colour of a state or outcome: good, bad, look; calm for all others."""
    return next((name for name, states in TONES.items() if str(value) in states), "calm")


@register.filter
def safe_verb(verb: str) -> str:
    """What a verb that is safe now means for a person."""
    return explain_words.SAFE_WORDS.get(verb, verb)


@register.filter
def safe_command(verb: str, run: WorkflowRun) -> str:
    """How an operator does a verb that is safe now and has no page of its own; otherwise nothing."""
    extra = {"extend": " --deadline …", "redrive": " --step …"}
    if verb not in ("cancel", "pause", "resume", "retry", *extra):
        return ""
    return f"manage.py durableflows {verb} {run.pk}{extra.get(verb, '')} --reason …"


@register.filter
def lasted(start: datetime | None, end: datetime | None) -> str:
    """How long something took: "0.42 s", "3 minutes"; nothing while it goes on."""
    if start is None or end is None:
        return ""
    seconds = (end - start).total_seconds()
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    return timesince(start, end).replace("\u00a0", " ")


@register.simple_tag
def time(at: datetime | None) -> SafeString | str:
    """A moment to the second in the current time zone, as an element that programs can read too."""
    if not at:
        return "–"
    local = timezone.localtime(at)
    return format_html('<time datetime="{}">{}</time>', at.isoformat(), f"{local:%Y-%m-%d %H:%M:%S %Z}")


@register.simple_tag
def day(at: datetime | None) -> SafeString | str:
    """A moment as people say it, "today 11:28 CET" or "Wed 2 Dec 11:28 CET", inside an element that has it exactly."""
    if not at:
        return "–"
    now, local = timezone.now(), timezone.localtime(at)
    words = f"{'today ' if local.date() == timezone.localtime(now).date() else ''}{explain_words.moment(at, now)}"
    exact = f"{local:%Y-%m-%d %H:%M:%S %Z}"
    return format_html('<time datetime="{}" title="{}">{} {}</time>', at.isoformat(), exact, words, f"{local:%Z}")


@register.filter(is_safe=True)
def plainly(value: object) -> str:
    """Show a text of others so that it cannot disguise itself: what hides, turns text round or passes for other letters
    is spelled out (`core.disguise`). Nothing for nothing.

    Line breaks stay. Never marks it as safe: the page escapes it as any other text. Of what is escaped already, such as
    a form's field, it leaves the markup alone.
    """
    return disguise.plainly("" if value is None else str(value))


@register.filter
def full_stop(text: object) -> str:
    """End a sentence whose last words may be somebody's own: `{{ error|plainly|full_stop }}`."""
    return explain_words.full_stop(str(text))


@register.filter
def label(name: object) -> str:
    """Show a fact's name as people write it: "order_number" -> "Order number"."""
    words = disguise.plainly(str(name)).replace("_", " ").strip()
    return words[:1].upper() + words[1:]


@register.inclusion_tag("durableflows/parts/_run_progress.html", takes_context=True)
def run_progress(context: Mapping[str, Any], subject: Model | None, limit: int = RUNS_SHOWN) -> dict[str, Any]:
    """Show the newest runs about an object, and how far each is: `{% run_progress order %}`.

    Only those that the person of the page (`user`) may see; nothing where nobody can say in which tenants that is.
    """
    return progress_of(subject, context.get("user"), limit)


def progress_of(subject: Model | None, person: Any, limit: int = RUNS_SHOWN) -> dict[str, Any]:
    """What the template of `run_progress` shows. A query for the runs, and one for each of them."""
    if subject is None or subject.pk is None or person is None:
        return {"rows": [], "is_cut": False}
    try:
        runs = list(runs_of(subject, person).order_by("-created_at", "-id")[: limit + 1])
    except TenantsUnknown:  # said in the log; the page around it is not ours to break
        runs = []
    now = clock.now() if runs else None
    rows = [(run, standing_of(run, now)) for run in runs[:limit] if now is not None]
    return {"rows": rows, "is_cut": len(runs) > limit}
