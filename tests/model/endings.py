"""Limits, cancels, failures, pauses and extensions, while workers are in the middle of effects."""

from tests.model.branches import Rules
from tests.model.rows import Flow, Way, allow
from tests.model.run import Run

PAY_TWICE = Flow(
    ways={
        "begin": (Way("go", ("left", "right")),),
        "left": (Way("ok"), Way("fail")),
        "right": (Way("end"),),
    },
    pays=frozenset({"left", "right"}),
)
"""Two branches with an effect each; the run's result, or its failure, comes from one."""

TURNS = Flow(
    ways={
        "begin": (Way("each", ("check",), items=("a", "b"), then="report", limit=1),),
        "check": (Way("go", ("report",)),),
        "report": (Way("ok"),),
    },
    joins=frozenset({"report"}),
    pays=frozenset({"check"}),
)
"""Items that pay, one at a time."""

GIVING_BACK = Flow(
    ways={
        "begin": (Way("go", ("left", "right")),),
        "left": (Way("ok"), Way("fail")),
        "right": (Way("end"),),
        "give_back": (Way("end"), Way("fail")),
    },
    pays=frozenset({"left", "give_back"}),
    cleanup="give_back",
)
"""A payment, and what gives it back when the run fails or is cancelled."""

LIMITED = allow(lost=1, limit=1, extend=1)
STOPPED = allow(freed=1, pause=1, cancel=1)
CLEANED = allow(freed=1, limit=1, cancel=1)

HOLDS = {
    "two payments, a limit and an extension": Run(PAY_TWICE, Rules(left=LIMITED)),
    "two payments, a pause and a cancel": Run(PAY_TWICE, Rules(left=STOPPED)),
    "items that pay, a limit and an extension": Run(TURNS, Rules(left=LIMITED)),
    "a clean-up": Run(GIVING_BACK, Rules(left=CLEANED)),
    "a clean-up, a limit and an extension": Run(GIVING_BACK, Rules(left=allow(limit=1, extend=1, cancel=1))),
}
DEEP = {
    "a clean-up, all of it": Run(GIVING_BACK, Rules(left=allow(death=1, freed=1, lost=1, limit=1, pause=1, cancel=1))),
    "two payments, all of it": Run(PAY_TWICE, Rules(left=allow(death=1, freed=1, lost=1, limit=1, extend=1, pause=1))),
    "two payments, two limits": Run(PAY_TWICE, Rules(left=allow(freed=1, lost=1, limit=2, extend=2))),
    "items that pay, all of it": Run(TURNS, Rules(left=allow(death=1, freed=1, limit=1, extend=1, pause=1, cancel=1))),
}
DROPS = {
    "a run ends while an effect is open": (Run(PAY_TWICE, Rules(left=LIMITED, settles_first=False)), "P15"),
    "a cancel is confirmed while a send is open": (Run(PAY_TWICE, Rules(left=STOPPED, cancel_waits=False)), "P6"),
    "what a step decided while the run ended is dropped": (Run(PAY_TWICE, Rules(left=LIMITED, keeps_ends=False)), "E"),
    "an extension takes the result back": (Run(PAY_TWICE, Rules(left=LIMITED, keeps_result=False)), "E2"),
    "a run that goes on gives no turns": (Run(TURNS, Rules(left=LIMITED, turns_again=False)), "limbo"),
    "a reserve does not look at the pause": (Run(PAY_TWICE, Rules(left=STOPPED, reserve_halts=False)), "P"),
    "a clean-up begins while a send is open": (Run(GIVING_BACK, Rules(left=CLEANED, lands_first=False)), "P"),
    "a run ends without its clean-up": (Run(GIVING_BACK, Rules(left=CLEANED, cleans_up=False)), "P8"),
    "a clean-up that fails ends the run at once": (Run(GIVING_BACK, Rules(left=CLEANED, closes_cleanup=False)), "P15"),
    "a claim does not look at the pause": (Run(PAY_TWICE, Rules(left=STOPPED, claim_halts=False)), "P1"),
}
"""One rule dropped -> the invariant that breaks."""
