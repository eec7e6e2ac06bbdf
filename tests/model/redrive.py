"""Going on from an earlier step: nothing is done again that nobody chose to repeat, and no branch is lost."""

from dataclasses import replace

from tests.model.branches import Rules
from tests.model.rows import Flow, Way, allow
from tests.model.run import Run

SHARED = Flow(
    ways={
        "begin": (Way("go", ("left", "right")),),
        "left": (Way("go", ("shared",)), Way("fail")),
        "right": (Way("go", ("shared",)), Way("fail")),
        "shared": (Way("end"),),
    },
    pays=frozenset({"shared"}),
)
"""Two branches that come to the same step, each for itself."""

CHOOSING = Flow(
    ways={
        "begin": (Way("go", ("left", "right")),),
        "left": (Way("go", ("shared",)), Way("end")),
        "right": (Way("go", ("shared",)), Way("end")),
        "shared": (Way("end"), Way("fail")),
    },
    pays=frozenset({"shared"}),
)
"""... or end before it, now and then."""

WAYS = Flow(
    ways={
        "begin": (Way("go", ("pay",)), Way("go", ("pack",)), Way("go", ("wrap",))),
        "pack": (Way("go", ("pay",)),),
        "wrap": (Way("go", ("pay",)),),
        "pay": (Way("go", ("last",)),),
        "last": (Way("ok"), Way("fail")),
    },
    pays=frozenset({"pay"}),
    is_one_branch=True,
)
"""One payment, to which more than one way leads."""

FAILING = Flow(
    ways={
        "begin": (Way("go", ("left", "right")),),
        "left": (Way("ok"), Way("fail")),
        "right": (Way("end"), Way("fail")),
    },
    pays=frozenset({"left", "right"}),
)
"""Two branches that pay, and may fail both."""

GATHERED = Flow(
    ways={
        "begin": (Way("go", ("left", "right")),),
        "left": (Way("go", ("both",)), Way("end")),
        "right": (Way("go", ("both",)), Way("end")),
        "both": (Way("ok"), Way("fail")),
    },
    joins=frozenset({"both"}),
)
"""Two branches and their join, which may fail; either branch may go another way the next time."""

PAYING_JOIN = replace(GATHERED, ways={**GATHERED.ways, "left": (Way("go", ("both",)),)}, pays=frozenset({"both"}))
"""... that pays."""


def gathered_items(keys: str, limit: int) -> Flow:
    """Items that fail, alone or with the run, and a report that may fail."""
    return Flow(
        ways={
            "begin": (Way("each", ("check",), items=tuple(keys), then="report", limit=limit),),
            "check": (Way("go", ("report",)), Way("collected"), Way("fail")),
            "report": (Way("ok"), Way("fail")),
        },
        joins=frozenset({"report"}),
    )


ITEMS = gathered_items("ab", 1)

PAYING_ITEMS = Flow(
    ways={
        "begin": (Way("each", ("check",), items=("a", "b"), then="report", limit=1),),
        "check": (Way("go", ("report",)), Way("fail")),
        "report": (Way("ok"), Way("fail")),
    },
    joins=frozenset({"report"}),
    pays=frozenset({"check"}),
)
"""... that pay."""

PAYING = Flow(
    ways={
        "begin": (Way("go", ("pay",)),),
        "pay": (Way("go", ("last",)),),
        "last": (Way("ok"), Way("fail")),
    },
    pays=frozenset({"pay"}),
)
"""A payment, and a last step that may fail."""

MAY_PAY = replace(PAYING, ways={**PAYING.ways, "begin": (Way("go", ("pay",)), Way("end"))})
"""... which the next walk may leave out."""

ONCE = allow(redrive=1)
TWICE = allow(redrive=2)
LIMITED = allow(redrive=1, limit=1, extend=1)
IN_DOUBT = allow(freed=1, redrive=1, pause=1)
PAUSED = allow(redrive=2, pause=1)

HOLDS = {
    "a step that both branches come to": Run(SHARED, Rules(left=ONCE)),
    "a step that they choose": Run(CHOOSING, Rules(left=ONCE)),
    "two payments that fail, a limit and an extension": Run(FAILING, Rules(left=LIMITED)),
    "a shorter and a longer way": Run(WAYS, Rules(left=ONCE)),
    "a join": Run(GATHERED, Rules(left=TWICE)),
    "a join that pays": Run(PAYING_JOIN, Rules(left=allow(freed=1, redrive=2))),
    "a join, in a run that is paused": Run(GATHERED, Rules(left=allow(redrive=2, pause=1))),
    "items, in a run that is paused": Run(ITEMS, Rules(left=allow(redrive=1, pause=1))),
    "items that pay, a limit and an extension": Run(PAYING_ITEMS, Rules(left=LIMITED)),
    "a payment that is repeated by choice": Run(PAYING, Rules(left=allow(freed=1, lost=1, redrive=2), repeats=True)),
    "a payment in doubt": Run(MAY_PAY, Rules(left=IN_DOUBT)),
    "a payment in a run that is paused": Run(PAYING, Rules(left=PAUSED, repeats=True)),
}
DEEP = {
    "a step that both branches come to, twice": Run(SHARED, Rules(left=allow(freed=1, redrive=2))),
    "a join, three times": Run(GATHERED, Rules(left=allow(freed=1, redrive=3))),
    "a join, in a run that is paused twice": Run(GATHERED, Rules(left=allow(redrive=2, pause=2))),
    "three items, twice": Run(gathered_items("abc", 2), Rules(left=allow(redrive=2, pause=1))),
    "two payments that fail, an answer is lost": Run(FAILING, Rules(left=allow(lost=1, redrive=1, limit=1, extend=1))),
    "a payment, all of it": Run(PAYING, Rules(left=allow(freed=2, lost=2, redrive=2, pause=1), repeats=True)),
}
DROPS = {
    "a visit that another branch may want is taken up": (Run(SHARED, Rules(left=ONCE, leaves_others=False)), "R1"),
    "... or has not chosen again": (Run(CHOOSING, Rules(left=ONCE, leaves_others=False)), "R"),
    "a join is left to the branch that had come to it first": (
        Run(PAYING_JOIN, Rules(left=TWICE, joins_are_shared=False)),
        "R1",
    ),
    "what came after is told by graph and time": (Run(SHARED, Rules(left=ONCE, origins=False)), "B3"),
    "a redrive makes new visits": (Run(PAYING, Rules(left=ONCE, visits_kept=False)), "R1"),
    "a join that others have come to is only gone back before": (
        Run(GATHERED, Rules(left=ONCE, joins_wait_again=False)),
        "B",
    ),
    "only the named branch is tried again": (Run(FAILING, Rules(left=ONCE, also=False)), "E3"),
    "of the ends that were kept the first counts": (Run(FAILING, Rules(left=LIMITED, failure_first=False)), "E1"),
    "redriven to a join that waits": (
        Run(GATHERED, Rules(left=allow(redrive=2, pause=1), refuses_waiting=False)),
        "J",
    ),
    "an item is sent back out of turn": (
        Run(ITEMS, Rules(left=allow(redrive=1, pause=1), keeps_limit=False)),
        "J3",
    ),
    "redriven while an effect is open": (Run(MAY_PAY, Rules(left=IN_DOUBT, refuses_open=False)), "P15"),
    "redriven while a worker is at it": (
        Run(MAY_PAY, Rules(left=PAUSED, refuses_running=False, refuses_open=False)),
        "P15",
    ),
    "redriven to a step that the run will come to": (Run(PAYING, Rules(left=PAUSED, refuses_rewound=False)), "R1"),
    "repeated while a send is open": (
        Run(PAYING, Rules(left=allow(freed=1, redrive=1), repeats=True, waits_for_sends=False)),
        "R3",
    ),
    "a choice counts for every attempt": (
        Run(PAYING, Rules(left=TWICE, repeats=True, choice_counts_once=False)),
        "R1",
    ),
    "a repeat under the old key": (Run(PAYING, Rules(left=ONCE, repeats=True, repeats_anew=False)), "R4"),
}
"""One rule dropped -> the invariant that breaks."""
