"""What an approver may change while approving: fields of a pydantic model, within the bounds of the facts shown.

Owns the form (what pages need to draw it), the reading of texts that were typed into it, and the check of values.
Values only. Money and numbers that name a binding fact may be lowered, never raised: more needs a new question.
"""

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from enum import Enum
from types import UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from durableflows.core import shape
from durableflows.core.money import Money
from durableflows.core.payload import JSON, same
from durableflows.core.wording import did_you_mean
from durableflows.errors import InvalidState

Schema: TypeAlias = type[BaseModel]
Problem: TypeAlias = tuple[str, str]
M = TypeVar("M", bound=BaseModel)

KINDS: Mapping[type, str] = {
    bool: "yes or no",
    int: "integer",
    Decimal: "decimal",
    Money: "money",
    dt.date: "date",
    str: "text",
}
NUMBERS = ("integer", "decimal")
# As amounts are typed: digits 0-9, no exponents, no separators. What is longer than a number of people is none.
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})")


@dataclass(frozen=True, slots=True)
class EditField:
    """One field of the form, as it is stored with a request.

    Shapes and units   kind: a value of KINDS, or "choice"; now: the value that it begins with, as JSON; most: the
                       highest value that is taken, as JSON, None for no such bound; longest: characters of a text
    """

    name: str
    label: str
    kind: str
    help: str
    required: bool
    now: JSON
    most: JSON
    longest: int | None
    choices: tuple[str, ...]


def schema_problems(schema: object) -> Iterator[str]:
    """Say what keeps a class from being made a form."""
    if not isinstance(schema, type) or not issubclass(schema, BaseModel):
        yield f"edits={schema!r}: a pydantic model of what an approver may change is needed"
        return
    if not schema.model_fields:
        yield f"edits={schema.__name__} has no fields: leave it out"
    for name, field in schema.model_fields.items():
        if not _kind(field):
            kinds = ", ".join(sorted(kind.__name__ for kind in KINDS))
            yield f"edits={schema.__name__}.{name}: no form can be made of its type, use {kinds}, Literal or an enum"


def form(schema: Schema, binding: Mapping[str, JSON]) -> list[EditField]:
    """Make the form of a schema, filled in from the facts of the same names.

    Raises InvalidState for money that no binding fact bounds: anything could be approved
    """
    return [_field(schema, name, field, binding) for name, field in schema.model_fields.items()]


def dump(fields: list[EditField]) -> list[JSON]:
    """Write a form as JSON."""
    return [cast(JSON, {**asdict(field), "choices": [*field.choices]}) for field in fields]


def load(data: JSON) -> list[EditField]:
    """Read a form that `dump` has written."""
    rows = cast(list[dict[str, Any]], data)
    return [EditField(**{**row, "choices": tuple(row["choices"])}) for row in rows]


def parse(fields: list[EditField], texts: Mapping[str, str]) -> dict[str, JSON]:
    """Read what was typed into a form. A field that is not among the texts keeps its value; a box left out means no.

    Raises InvalidState with all problems: (name of the field, message)
    """
    given: dict[str, JSON] = {}
    problems: list[Problem] = []
    for field in fields:
        try:
            if field.name in texts or field.kind == "yes or no":
                given[field.name] = _typed(field, texts.get(field.name, "").strip())
        except InvalidState as error:
            problems.append((field.name, str(error)))
    if problems:
        raise _refused(problems)
    return given


def read(schema: Schema, given: Mapping[str, object], binding: Mapping[str, JSON]) -> dict[str, JSON]:
    """Check values against the schema and the facts that were shown: all fields as JSON; {} when nothing is changed.

    Runs the schema's own validators. Raises InvalidState with all problems
    """
    fields = {field.name: field for field in form(schema, binding)}
    strangers = [name for name in given if name not in fields]
    if strangers:
        raise _refused([(str(name), f"is no field of the form{did_you_mean(name, fields)}") for name in strangers])
    plain = {name: shape.plain(value, what=f"edits: {name}") for name, value in given.items()}
    before = {name: field.now for name, field in fields.items() if field.now is not None or not field.required}
    adapter = TypeAdapter(schema)
    checked = shape.load(adapter, cast(JSON, {**before, **plain}), what="edits")
    after = shape.as_object(shape.dump(adapter, checked, what="edits"))
    problems = [(name, why) for name, field in fields.items() if (why := _out_of_bounds(field, after.get(name)))]
    if problems:
        raise _refused(problems)
    changed = any(not same(after.get(name), field.now) for name, field in fields.items())
    return after if changed else {}


def value_of(schema: type[M], data: Mapping[str, JSON]) -> M:
    """Read stored values. Raises InvalidState when they do not fit the schema any more."""
    return shape.load(TypeAdapter(schema), cast(JSON, dict(data)), what="edits")


def applied(binding: Mapping[str, JSON], edits: Mapping[str, JSON]) -> dict[str, JSON]:
    """The binding facts as they are once the edits are made."""
    return {name: edits.get(name, value) for name, value in binding.items()}


def _field(schema: Schema, name: str, field: FieldInfo, binding: Mapping[str, JSON]) -> EditField:
    kind, fact = _kind(field), binding.get(name)
    if kind == "money" and not _is_money(fact):
        raise InvalidState(
            f"{schema.__name__}.{name} is money, and no binding fact {name!r} is: nothing says how much may be approved"
        )
    bounded = kind == "money" or (kind in NUMBERS and name in binding)
    return EditField(
        name=name,
        label=field.title or name.replace("_", " ").capitalize(),
        kind=kind,
        help=field.description or "",
        required=field.is_required(),
        now=fact if name in binding else _default(field),
        most=fact if bounded else None,
        longest=next((rule.max_length for rule in field.metadata if hasattr(rule, "max_length")), None),
        choices=_choices(field),
    )


def _default(field: FieldInfo) -> JSON:
    if field.is_required():
        return None
    return shape.plain(field.get_default(call_default_factory=True), what="a default")


def _kind(field: FieldInfo) -> str:
    if _choices(field):
        return "choice"
    annotation = _plain(field.annotation)
    return KINDS.get(annotation, "") if isinstance(annotation, type) else ""


def _plain(annotation: object) -> object:
    """Take the None out of `X | None`."""
    if get_origin(annotation) in (Union, UnionType):
        inside = [one for one in get_args(annotation) if one is not type(None)]
        return inside[0] if len(inside) == 1 else annotation
    return annotation


def _choices(field: FieldInfo) -> tuple[str, ...]:
    annotation = _plain(field.annotation)
    values = get_args(annotation) if get_origin(annotation) is Literal else ()
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        values = tuple(member.value for member in annotation)
    return values if all(isinstance(value, str) for value in values) else ()


def _typed(field: EditField, text: str) -> JSON:
    """One text as JSON. Raises InvalidState in words for whoever typed it."""
    if field.kind == "yes or no":
        return text.lower() not in ("", "0", "no", "false", "off")
    if not text and not field.required and field.kind != "text":
        return None
    match field.kind:
        case "money":
            money = Money.parse(text, str(cast(dict[str, JSON], field.now)["currency"]))
            return {"amount_minor": money.amount_minor, "currency": money.currency}
        case "integer":
            return _integer(text)
        case "decimal":
            return _decimal(text)
        case "choice" if text not in field.choices:
            raise InvalidState(f"choose one of {', '.join(field.choices)}")
    return text


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise InvalidState(f"{text[:40]!r} is not a whole number: write digits")
    return int(text)


def _decimal(text: str) -> str:
    if not _DECIMAL.fullmatch(text):
        raise InvalidState(f"{text[:40]!r} is not a number: write digits and at most one point")
    return str(Decimal(text))


def _out_of_bounds(field: EditField, value: JSON) -> str:
    if field.most is None or value is None:
        return ""
    if field.kind == "money":
        return _money_out_of_bounds(_money(value), _money(field.most))
    number, most = Decimal(str(value)), Decimal(str(field.most))
    if number > most:
        return f"may be at most {field.most}, as it was asked: for more a new request is needed"
    return "may not be less than nothing" if number.is_signed() and most >= 0 else ""


def _money_out_of_bounds(value: Money, most: Money) -> str:
    if value.currency != most.currency:
        return f"must be in {most.currency}, as it was asked"
    if value > most:
        return f"may be at most {most.words}, as it was asked: for more a new request is needed"
    return "" if value.is_positive else "must be more than nothing: reject what is not to be done"


def _money(value: JSON) -> Money:
    return shape.load(TypeAdapter(Money), value, what="an amount")


def _is_money(value: JSON) -> bool:
    return isinstance(value, dict) and set(value) == {"amount_minor", "currency"}


def _refused(problems: list[Problem]) -> InvalidState:
    said = "; ".join(f"{name} {message}" for name, message in problems)
    return InvalidState(f"edits: {said}", problems=tuple(problems))
