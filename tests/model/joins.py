"""Joins, items and the state that branches share, under worker death and leases freed under living workers."""

from tests.model.branches import Rules
from tests.model.rows import Flow, Way, allow
from tests.model.run import Run

GO = "go"

TWO_WAYS = Flow(
    ways={
        "begin": (Way(GO, ("left", "right")),),
        "left": (Way(GO, ("both",)), Way("end"), Way(GO, ("left",), once=True)),
        "right": (Way(GO, ("both",)), Way("end")),
        "both": (Way("ok"),),
    },
    joins=frozenset({"both"}),
)
"""Either branch may end elsewhere; one may go round once."""


def items(keys: str, limit: int) -> Flow:
    """No edge leads from the items to the join; some fail alone, and there may be none."""
    return Flow(
        ways={
            "begin": (
                Way("each", ("check",), items=tuple(keys), then="report", limit=limit),
                Way("each", ("check",), items=(), then="report"),
            ),
            "check": (Way(GO, ("weigh",)), Way("collected"), Way("end")),
            "weigh": (Way("end"),),
            "report": (Way("ok"),),
        },
        joins=frozenset({"report"}),
    )


ITEMS = items("ab", 1)

RING = Flow(
    ways={
        "begin": (Way(GO, ("a", "b")),),
        "a": (Way(GO, ("b",), once=True), Way("end")),
        "b": (Way(GO, ("a",), once=True), Way("end")),
    },
    joins=frozenset({"a", "b"}),
)
"""Two joins that wait for each other."""

HOLDS = {
    "two ways": Run(TWO_WAYS, Rules()),
    "items": Run(ITEMS, Rules()),
    "ring": Run(RING, Rules()),
}
DEEP = {
    "two ways, two deaths, two freed leases": Run(TWO_WAYS, Rules(left=allow(death=2, freed=2))),
    "three items, two at a time": Run(items("abc", 2), Rules()),
}
DROPS = {
    "a join begins when as many have come as lead to it": (Run(TWO_WAYS, Rules(join="count")), "limbo"),
    "a join begins with the first that comes": (Run(TWO_WAYS, Rules(join="first")), "J1"),
    "who comes to a waiting join makes another one": (Run(TWO_WAYS, Rules(join_kept=False)), "J2"),
    "joins that wait for each other wait": (Run(RING, Rules(oldest_begins=False)), "limbo"),
    "items are waited for only where an edge leads": (Run(ITEMS, Rules(gathers_items=False)), "B2"),
    "the first item that comes makes the join": (Run(ITEMS, Rules(each_makes_join=False)), "B2"),
    "an item that ends wakes nobody": (Run(ITEMS, Rules(turns=False)), "limbo"),
    "the last to settle overwrites the state": (Run(TWO_WAYS, Rules(merge="last")), "B4"),
    "a settlement does not look at the lease": (Run(TWO_WAYS, Rules(settle_checks_lease=False)), "P4"),
    "a run succeeds with its first branch that does": (Run(TWO_WAYS, Rules(ends_with_last=False)), "B1"),
}
"""One rule dropped -> the invariant that breaks."""
