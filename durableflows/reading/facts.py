"""What a person looks for first in a request: how much, to whom, why, and by which rule it is asked.

Facts have the names that a project gave them. Those that are named as usual are shown on top; all others stand below,
so nothing is lost where the names are unusual.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from durableflows.explain_words import money_of
from durableflows.models import ApprovalRequest
from durableflows.templatetags.durableflows import fact

WHOM = ("customer", "recipient", "payee", "beneficiary", "employee", "to")
WHY = ("reason", "why", "purpose")
RULE = ("rule", "policy")

Named = list[tuple[str, object]]


@dataclass(frozen=True, slots=True)
class Shown:
    """A request's facts in the order in which they are read."""

    amount: str
    whom: str
    binding: Named
    why: Named
    rule: Named
    evidence: Named


def shown_of(asked: ApprovalRequest) -> Shown:
    """Sort the facts of a request for its page."""
    context = _facts(asked.context)
    why, rule = _named(context, WHY), _named(context, RULE)
    told = {name for name, _ in (*why, *rule)}
    rest = [(name, value) for name, value in context.items() if name not in told]
    return Shown(amount_of(asked), whom_of(asked), list(_facts(asked.binding).items()), why, rule, rest)


def amount_of(asked: ApprovalRequest) -> str:
    """The first fact that is money, of what is bound before what is context; '' when none is."""
    facts = [*_facts(asked.binding).values(), *_facts(asked.context).values()]
    return next((amount.words for amount in map(money_of, facts) if amount), "")


def whom_of(asked: ApprovalRequest) -> str:
    """The fact that names whom it is for, of what is bound before what is context; '' when none has such a name."""
    found = _named(_facts(asked.binding), WHOM) or _named(_facts(asked.context), WHOM)
    return fact(found[0][1]) if found else ""


def whom_fact(asked: ApprovalRequest) -> str | None:
    """The name of the bound fact that says whom it is for; None when none has such a name."""
    found = _named(_facts(asked.binding), WHOM)
    return found[0][0] if found else None


def _facts(kept: object) -> Mapping[str, object]:
    """The facts by name; as one where somebody has put something else in their place: a list shows the others too."""
    if isinstance(kept, dict):
        return kept
    return {} if kept is None else {"facts": kept}


def _named(facts: Mapping[str, object], names: tuple[str, ...]) -> Named:
    found = [(name, value) for name, value in facts.items() if _plain(name) in names]
    return sorted(found, key=lambda one: names.index(_plain(one[0])))


def _plain(name: str) -> str:
    return name.replace("_", " ").strip().lower()
