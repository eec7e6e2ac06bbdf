"""The visits of a step: how often a run has been there, and which one is taken up again after a redrive.

Called by `arrivals`, `progress` and `reopening`, with the run locked. Makes no rows; in memory, unless it says so.
"""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, Q

from durableflows.core import registry
from durableflows.core.plan import Origin, may_take_up
from durableflows.core.states import STEP_OPEN, StepState
from durableflows.models import StepRun, WorkflowRun
from durableflows.models.locks import lock_step
from durableflows.transactions import database

AGAIN_FIELDS = (
    *(
        "state",
        "ended_at",
        "wake_at",
        "output",
        "input",
        "input_seal",
        "base_sequence",
        "each_step",
        "gather",
        "stood",
        "rewound",
        "came_from",
        "joined",
    ),
    *("error_class", "error_code", "error_text", "retry_reason", "waits_on", "waits_for", "needs_person"),
    *("attempts_forgiven", "lost_workers", "tries_since", "resend_at", "sent_at", "sends", "send_error"),
)


@dataclass(frozen=True, slots=True)
class Past:
    """How often the run has come to a step in the branch of an item; `rewound`: visits that a redrive went back before.

    The next arrival takes such a visit up again, and is no new one.
    """

    visits: int
    rewound: int


def past(run: WorkflowRun, name: str, item_key: str = "") -> Past:
    """What the run has to do with a step so far."""
    rows = StepRun.objects.using(database()).filter(run=run, name=name, item_key=item_key).order_by()
    return Past(**rows.aggregate(visits=Count("pk"), rewound=Count("pk", filter=Q(rewound=True))))


def rewound(run: WorkflowRun, name: str, item_key: str, came_from: StepRun | None) -> StepRun | None:
    """The visit that the next arrival takes up again, locked; None: it makes a new one.

    A join belongs to no branch: whoever comes first takes it up.
    """
    if registry.get(run.workflow, run.version).step(name).join:
        came_from = None
    rows = StepRun.objects.using(database()).filter(run=run, name=name, item_key=item_key, rewound=True)
    found = to_take_up(run, list(rows.order_by("visit")), came_from)
    return lock_step(found.pk) if found else None


def to_take_up(run: WorkflowRun, found: list[StepRun], came_from: StepRun | None) -> StepRun | None:
    """Of visits that a redrive went back before: the one that this step had led to, else one that no branch wants."""
    if not found or came_from is None:
        return found[0] if found else None
    own = next((step for step in found if step.came_from_id == came_from.pk), None)
    if own is not None:
        return own
    origins = _origins(run)
    return next((step for step in found if may_take_up(step.pk, came_from.pk, origins)), None)


def _origins(run: WorkflowRun) -> dict[UUID, Origin]:
    steps = registry.get(run.workflow, run.version).steps
    rows = StepRun.objects.using(database()).filter(run=run)
    values = rows.values_list("pk", "name", "came_from_id", "joined", "rewound", "state")
    return {
        pk: Origin(
            came_from=came_from,
            joined=[UUID(join) for join in joined],
            is_join=name in steps and steps[name].join,
            is_rewound=is_rewound,
            is_open=state in STEP_OPEN,
        )
        for pk, name, came_from, joined, is_rewound, state in values
    }


def stand_again(step: StepRun, state: StepState) -> None:
    """Take an ended visit up again: no tries, no error and no output of before. AGAIN_FIELDS store it."""
    step.move("wait_again" if state == StepState.WAITING else "reopen")
    step.ended_at = step.wake_at = step.output = step.tries_since = step.stood = None
    step.error_class = step.error_code = step.error_text = step.retry_reason = ""
    step.waits_on = step.waits_for = ""
    step.attempts_forgiven, step.lost_workers = step.attempts, 0
    step.needs_person = step.rewound = False
    step.joined = []
