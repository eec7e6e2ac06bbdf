"""What an approval must fulfil: each mistake in words, with its cure.

Owns the rules about who is asked, for which amounts and until when. Called by `core.check`. Never reaches outside:
whether a group or a person is there is found out when somebody is asked.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta

from durableflows.core.approval import ApprovalSpec, Escalate, Fallback
from durableflows.core.approvers import Approvers, band_problems
from durableflows.core.edits import schema_problems
from durableflows.core.until import Until
from durableflows.errors import InvalidDefinition

_PERMISSION = re.compile(r"\w+\.\w+")


def approval_problems(spec: ApprovalSpec) -> Iterator[str]:
    """Say what is wrong with an approval."""
    for option in ("title", "approved", "rejected"):
        if not getattr(spec, option):
            yield f"{option} is missing: an approval needs a title, and a step for each answer"
    shows: object = spec.shows
    if not callable(shows):
        yield f"shows={shows!r}: a function of the run that returns Facts is needed"
    yield from _expiry_problems(spec)
    yield from _remind_problems(spec.remind)
    if spec.edits is not None:
        yield from schema_problems(spec.edits)
    named = [*_named_problems(spec)]
    yield from named
    if not named:
        yield from _people_problems(spec)


def _named_problems(spec: ApprovalSpec) -> Iterator[str]:
    """Those after which nobody can say who would be asked."""
    if type(spec.quorum) is not int or spec.quorum < 1:
        yield f"quorum={spec.quorum!r}: at least one answer is needed"
    if spec.bands:
        yield from _band_problems(spec)
        return
    amount: object = spec.amount
    if amount is not None and not (callable(amount) or isinstance(amount, str)):
        yield f"amount={amount!r}: the name of a binding fact, or a function of the run is needed"
    try:
        spec.asked_of(None)
    except InvalidDefinition as error:
        yield f"{error}; or give bands=[Band(...), ...]"


def _band_problems(spec: ApprovalSpec) -> Iterator[str]:
    bands: object = spec.bands
    if isinstance(bands, str) or not isinstance(bands, Sequence):
        yield f"bands={bands!r}: a list of Band(...) is needed"
        return
    yield from band_problems(spec.bands)
    if spec.permission or spec.groups or spec.people or spec.quorum != 1:
        yield "bands beside permission, groups, people or quorum: put these into the Approvers(...) of a band"
    if not (callable(spec.amount) or (isinstance(spec.amount, str) and spec.amount)):
        yield f"amount={spec.amount!r} with bands: name the binding fact, or give a function of the run, that says it"
    if all(getattr(band, "by", spec) is None for band in spec.bands):
        yield "bands that ask nobody: leave the approval out"


def _people_problems(spec: ApprovalSpec) -> Iterator[str]:
    for by in spec.everybody():
        if by.permission and not _PERMISSION.fullmatch(by.permission):
            yield f"permission {by.permission!r} is not of the form 'app_label.codename'"
        if not by.can_be_enough:
            yield _too_few(by)


def _too_few(by: Approvers) -> str:
    return f"quorum={by.quorum} of {len(by.people)} named: so many can never say yes, name more or lower it"


def _expiry_problems(spec: ApprovalSpec) -> Iterator[str]:
    expires: object = spec.expires
    if not isinstance(expires, timedelta | Until):
        yield f"expires={expires!r}: a time span or Until(time(17), days=1, zone='Europe/Berlin') is needed"
    elif isinstance(expires, timedelta) and expires <= timedelta(0):
        yield "expires must be longer than nothing"
    on_expiry: object = spec.on_expiry
    if on_expiry != "deny" and not isinstance(on_expiry, Escalate | Fallback):
        yield f"on_expiry={on_expiry!r}: 'deny', Escalate('app.permission') or Fallback('step') is needed"


def _remind_problems(remind: object) -> Iterator[str]:
    if not isinstance(remind, Sequence) or not all(isinstance(span, timedelta) and span for span in remind):
        yield (
            f"remind={remind!r}: time spans are needed, (timedelta(days=1), timedelta(hours=-4)) for a day after "
            "asking and four hours before the end"
        )
