"""Runs by name: wherever a verb asks for a run's id, the run's business key is understood too."""

from argparse import Namespace
from uuid import UUID

from durableflows.errors import NotFoundError
from durableflows.explain_words import plain
from durableflows.management.operators import person
from durableflows.selectors import runs_for

MOST_NAMED = 5


def with_run_id(options: Namespace) -> Namespace:
    """Put the run's id where its business key was given. An id, and no run at all, stay as they are.

    Raises   NotFoundError for a key of no run, or of runs of several tenants; only of those that `--by` may see
    """
    given = str(getattr(options, "run", None) or "")
    if not given or _is_id(given):
        return options
    if "\x00" in given:
        raise NotFoundError(f"{plain(given, 60)!r} is no run's id, and no business key")
    runs = runs_for(person(getattr(options, "by", ""))).filter(business_key=given)
    found = list(runs.order_by("tenant").values_list("pk", "tenant")[: MOST_NAMED + 1])
    if not found:
        raise NotFoundError(f"{plain(given, 60)!r} is neither a run's id nor the business key of one that you may see")
    if len(found) > 1:
        named = ", ".join(f"{pk} of tenant {plain(tenant)!r}" for pk, tenant in found[:MOST_NAMED])
        raise NotFoundError(f"several runs have the key {plain(given, 60)!r}: say which by its id: {named}")
    return Namespace(**{**vars(options), "run": str(found[0][0])})


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
