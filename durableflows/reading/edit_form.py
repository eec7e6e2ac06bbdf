"""What an approver may change, as fields of the decision page: drawn from the form that is kept with the request.

Reads what was typed, and says at each field what is wrong with it. What counts is checked by `api.answer`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from durableflows.core import edits
from durableflows.core.edits import EditField
from durableflows.core.payload import JSON
from durableflows.core.states import ApprovalState
from durableflows.explain_words import money_of
from durableflows.models import ApprovalDecision, ApprovalRequest
from durableflows.templatetags.durableflows import fact

PREFIX = "edit-"
LONG_TEXT = 120


@dataclass(frozen=True, slots=True)
class ShownField:
    """One field as it is drawn. `text`: what stands in it; `hint`: its bound, in words; `problem`: what is wrong."""

    name: str
    label: str
    kind: str
    help: str
    hint: str
    text: str
    choices: tuple[str, ...]
    longest: int | None
    required: bool
    problem: str

    @property
    def is_long(self) -> bool:
        """Is there room for more than a line?"""
        return self.kind == "text" and (self.longest is None or self.longest > LONG_TEXT)

    @property
    def is_checked(self) -> bool:
        """Is the box ticked?"""
        return self.text == "yes"

    @property
    def mode(self) -> str:
        """Which keys a phone shows."""
        return {"integer": "numeric", "decimal": "decimal", "money": "decimal"}.get(self.kind, "text")


def given(asked: ApprovalRequest, posted: Mapping[str, str]) -> dict[str, JSON]:
    """Read what was typed. Raises InvalidState with all problems: (name of the field, message)."""
    if not asked.edit_schema:
        return {}
    texts = {name.removeprefix(PREFIX): text for name, text in posted.items() if name.startswith(PREFIX)}
    return edits.parse(edits.load(asked.edit_schema), texts)


def shown(
    asked: ApprovalRequest,
    posted: Mapping[str, str],
    problems: Mapping[str, str],
    counted: Sequence[ApprovalDecision],
    person: Any,
) -> list[ShownField]:
    """The fields as they are drawn, with what was typed into them before, if anything was posted.

    They begin with what the person has approved, or with what somebody else has: only the same values count together.
    counted   the answers that stand
    """
    if not asked.edit_schema:
        return []
    mine = [vote for vote in counted if vote.actor_id == person.pk and vote.verdict == "approve"]
    begin: Mapping[str, JSON] = next((vote.edits for vote in reversed(mine or agreed(asked, counted, person))), {})
    return [_shown(field, posted, problems, begin) for field in edits.load(asked.edit_schema)]


def agreed(asked: ApprovalRequest, counted: Sequence[ApprovalDecision], person: Any) -> list[ApprovalDecision]:
    """The approvals of others that the person's own would have to agree with; none where one answer is enough."""
    if not asked.edit_schema or asked.quorum == 1 or asked.state != ApprovalState.OPEN:
        return []
    return [vote for vote in counted if vote.actor_id != person.pk and vote.verdict == "approve"]


def _shown(
    field: EditField, posted: Mapping[str, str], problems: Mapping[str, str], begin: Mapping[str, JSON]
) -> ShownField:
    name = f"{PREFIX}{field.name}"
    text = posted.get(name, "") if "verdict" in posted else _text(begin.get(field.name, field.now))
    if field.kind == "yes or no" and "verdict" in posted:
        text = "yes" if text else ""
    hint = f"at most {fact(field.most)}" if field.most is not None else ""
    return ShownField(
        name=name,
        label=field.label,
        kind=field.kind,
        help=field.help,
        hint=hint,
        text=text,
        choices=field.choices,
        longest=field.longest,
        required=field.required,
        problem=problems.get(field.name, ""),
    )


def _text(value: JSON) -> str:
    """A stored value as a person would type it."""
    amount = money_of(value)
    if amount is not None:
        return f"{amount.amount:f}"
    if isinstance(value, bool):
        return "yes" if value else ""
    return "" if value is None else str(value)
