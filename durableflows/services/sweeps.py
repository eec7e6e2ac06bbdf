"""What must be noticed without anybody calling: dead workers, due timers, lost messages, overdue requests, quiet ends.

Each sweep picks ids without locks, then takes one row a transaction and looks again, so any number of tickers may
run at once. It runs SQL and publishes, nothing else: lookups are sent as tasks, user code is never called here, but for
whom a person's rights are asked of (log-in backends, TENANTS_OF), outside any transaction.
Source: design, section 4 (locks, who notices a dead worker); protocol, rules 6, 10, 11, 13; R02, R09.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from functools import partial
from random import SystemRandom
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from durableflows import claims, clock, dispatch, progress, releases
from durableflows.boundaries import Boundary, cross
from durableflows.claims import free_locked, free_overrun_locked
from durableflows.conf import settings
from durableflows.core import log_lines, registry
from durableflows.core.decide import Decision, after_timeout
from durableflows.core.ending import AT_WORK
from durableflows.core.states import (
    EFFECT_PENDING,
    RUN_ENDED,
    STEP_OPEN,
    ApprovalState,
    EffectState,
    ParkedReason,
    RunState,
    StepState,
    WaitsOn,
)
from durableflows.models import ApprovalRequest, SideEffect, StepAttempt, StepRun, Worker, WorkflowRun
from durableflows.models.locks import lock_step, try_lock_run
from durableflows.models.step import GOES_ON
from durableflows.services import (
    abandon,
    children,
    ends,
    expiry,
    notices,
    provider_events,
    providers,
    reconcile,
    unanswerable,
)
from durableflows.services.outbox import send_ready, send_unclaimed
from durableflows.services.turns import all_steps, each, judged_here, lock_going_on, while_open
from durableflows.transactions import database, is_away, transact

PHASES_AT_WORK = [str(phase) for phase in sorted(AT_WORK)]

logger = log_lines.logger("durableflows.sweeps")

_random = SystemRandom()


def _unnoted(name: str, error: Exception | None) -> None:
    """Nobody wants to know."""


def sweep(
    *, may_free_stale: bool = True, leases_only: bool = False, note: Callable[[str, Exception | None], None] = _unnoted
) -> dict[str, int]:
    """Do everything that is due, in batches. Returns how many rows each sweep moved. Raises when the database is away.

    may_free_stale   only a ticker that has itself run without a gap may call other workers dead
    leases_only      another ticker has just done the rest
    note             is told of each sweep that it was done, or what it failed with
    """
    done: dict[str, int] = {}
    for name, do in SWEEPS.items():
        if (name == "stale workers" and not may_free_stale) or (leases_only and name not in FREE_LEASES):
            continue
        try:
            done[name] = do(clock.now())
        except Exception as error:  # one broken row or sweep must not keep the others from running (R04)
            if is_away(error):
                raise
            logger.exception("the sweep of %s failed; it is tried again", name)
            done[name] = 0
            note(name, error)
        else:
            note(name, None)
    return done


def free_lost_tasks(task_ids: Iterable[str]) -> int:
    """Free the steps of pool children that are known to be dead, by the Celery task they worked on."""
    lost = list(task_ids)
    steps = all_steps().filter(state=StepState.RUNNING, lease_task_id__in=lost).order_by("must_end_by")
    why = "its worker process died"
    return each(steps, lambda pk: _free(pk, why, lambda step, now: step.lease_task_id in lost), line="lost tasks")


def free_overrun_tasks(task_ids: Iterable[str]) -> int:
    """Free the steps of pool children that their worker has ended at the hard time limit: the try has failed (R07)."""
    ended = list(task_ids)
    steps = all_steps().filter(state=StepState.RUNNING, lease_task_id__in=ended).order_by("must_end_by")
    overran = partial(free_overrun_locked, rng=_random)
    return each(
        steps, lambda pk: _take(pk, lambda step, now: step.lease_task_id in ended, overran), line="overrun tasks"
    )


def dead_processes(boot_id: UUID, is_alive: Callable[[int], bool]) -> list[UUID]:
    """The steps of a worker's own pool children that are dead, by the pid that their claim wrote down."""
    tries = StepAttempt.objects.using(database()).filter(
        step__state=StepState.RUNNING, step__lease_worker=boot_id, ended_at__isnull=True, pid__gt=0
    )
    return [step_id for step_id, pid in tries.values_list("step_id", "pid") if not is_alive(pid)]


def free_dead_processes(dead: Collection[UUID], boot_id: UUID, is_alive: Callable[[int], bool]) -> int:
    """Free those steps; what was freed meanwhile is left alone."""

    def is_dead(step: StepRun, now: datetime) -> bool:
        tries = StepAttempt.objects.using(database()).filter(step=step, number=step.attempts, worker=boot_id, pid__gt=0)
        return step.lease_worker == boot_id and any(not is_alive(pid) for pid in tries.values_list("pid", flat=True))

    if not dead:
        return 0
    steps = all_steps().filter(pk__in=dead).order_by("must_end_by")
    return each(steps, lambda pk: _free(pk, "its worker process died", is_dead), line="dead processes")


def free_worker(boot_id: UUID) -> int:
    """Free every step of a worker that is known to be dead with all its children."""
    steps = all_steps().filter(state=StepState.RUNNING, lease_worker=boot_id).order_by("must_end_by")
    return each(
        steps,
        lambda pk: _free(pk, "its worker died", lambda step, now: step.lease_worker == boot_id),
        line=f"worker {boot_id}",
    )


def free_stale_workers(now: datetime) -> int:
    """Free the leases of workers whose heartbeat is stale by the database's clock."""
    cutoff = now - timedelta(seconds=settings().STALE_SECONDS)
    alive = Worker.objects.using(database()).filter(heartbeat_at__gt=cutoff, stopped_at__isnull=True)
    known = Worker.objects.using(database()).values("boot_id")
    steps = all_steps().filter(state=StepState.RUNNING).exclude(lease_worker__in=alive.values("boot_id"))
    # A process that never registered (a shell, a test) is judged by `must_end_by` alone.
    steps = steps.filter(lease_worker__in=known).order_by("must_end_by")

    def is_dead(step: StepRun, at: datetime) -> bool:
        assert step.lease_worker is not None
        live = Worker.objects.using(database()).filter(boot_id=step.lease_worker, stopped_at__isnull=True)
        return not live.filter(heartbeat_at__gt=at - timedelta(seconds=settings().STALE_SECONDS)).exists()

    return each(steps, lambda pk: _free(pk, "its worker has not been heard of", is_dead), line="stale workers")


def free_overdue(now: datetime) -> int:
    """Void leases past `must_end_by`, whatever the heartbeat says."""
    steps = all_steps().filter(state=StepState.RUNNING, must_end_by__lt=now).order_by("must_end_by")

    def is_over(step: StepRun, at: datetime) -> bool:
        return step.must_end_by is not None and step.must_end_by < at

    return each(steps, lambda pk: _free(pk, "it did not end in its time", is_over), line="overdue leases")


def _free(step_id: UUID, why: str, is_dead: Callable[[StepRun, datetime], bool]) -> bool:
    return _take(step_id, is_dead, lambda run, step, now: free_locked(run, step, now, why))


@transact
def _take(
    step_id: UUID,
    is_dead: Callable[[StepRun, datetime], bool],
    take: Callable[[WorkflowRun, StepRun, datetime], None],
) -> bool:
    run_id = progress.run_of(step_id)
    run = try_lock_run(run_id) if run_id else None
    if run is None:
        return False
    step = lock_step(step_id)
    now = clock.now()
    if step.state != StepState.RUNNING or run.ended_at is not None or not is_dead(step, now):
        return False
    take(run, step, now)
    return True


def wake_due(now: datetime) -> int:
    """Make retries READY whose time has come, and send them."""
    steps = all_steps().filter(GOES_ON, state=StepState.RETRY_SCHEDULED, wake_at__lte=now)
    return each(steps.order_by("wake_at"), _go_on_crossing, line="due retries")


def end_waits(now: datetime) -> int:
    """Let steps begin whose time has come, and runs go on that have waited in vain for a signal."""
    kinds = [str(WaitsOn.TIMER), str(WaitsOn.SIGNAL)]
    steps = all_steps().filter(GOES_ON, state=StepState.WAITING, waits_on__in=kinds, wake_at__lte=now)
    return each(steps.order_by("wake_at"), _go_on_crossing, line="timers")


def _go_on_crossing(step_id: UUID) -> bool:
    went_on = _go_on(step_id)
    cross(Boundary.TIMER_AFTER_COMMIT)
    return went_on


@transact
def _go_on(step_id: UUID) -> bool:
    locked = lock_going_on(step_id)
    if locked is None:
        return False
    (run, step), now = locked, clock.now()
    if step.wake_at is None or step.wake_at > now:
        return False
    if step.waits_on == WaitsOn.SIGNAL and _is_known(run) and claims.park_if_changed(run, step, now):
        return True  # it would go where somebody else has written
    decision = _when_due(run, step)
    if decision is None:
        return False
    progress.apply(run, step, decision, now=now)
    cross(Boundary.TIMER_BEFORE_COMMIT)
    return True


def _when_due(run: WorkflowRun, step: StepRun) -> Decision | None:
    """What a step does whose time has come; None for one that waits for no time any more."""
    if step.state == StepState.RETRY_SCHEDULED:
        return Decision("make_ready", reason=step.retry_reason)
    if step.state != StepState.WAITING:
        return None
    if step.waits_on == WaitsOn.TIMER:
        return Decision("make_ready", reason="its time has come")
    if step.waits_on == WaitsOn.SIGNAL and step.input.get("on_timeout") and _is_known(run):
        return after_timeout(str(step.input["wants"]), str(step.input["on_timeout"]))
    return None


def _is_known(run: WorkflowRun) -> bool:
    """Where a run goes on to is in its declaration: a process without it leaves the run to one that has it."""
    return (run.workflow, run.version) in registry.known()


def carry_crossings(now: datetime) -> int:
    """Start, hand back and cancel children of other runs where that is due."""
    return sum(each(rows, children.carry, line=f"children: {what}") for what, rows in children.due().items())


def park_unknown(now: datetime) -> int:
    """Park runs whose workflow or version no worker knows: Celery throws messages for unknown tasks away, unseen."""
    known = releases.known_releases(now)
    if known is None:
        return 0
    since = now - timedelta(seconds=settings().UNKNOWN_WORKFLOW_SECONDS)
    # A signal that did not come in time leads to where only the declaration knows, and so does a person's answer.
    timed_out = Q(state=StepState.WAITING, waits_on=WaitsOn.SIGNAL, wake_at__lt=since)
    stuck = Q(state__in=[StepState.READY, StepState.WAITING_HUMAN]) | timed_out
    steps = all_steps().filter(stuck, GOES_ON, created_at__lt=since)
    steps = steps.filter(run__changed_at__lt=since)
    for name, version in known:
        steps = steps.exclude(run__workflow=name, run__version=version)
    return each(steps.order_by("created_at"), _park_unknown, line="unknown releases")


@transact
def _park_unknown(step_id: UUID) -> bool:
    locked = lock_going_on(step_id)
    waits = (StepState.READY, StepState.WAITING, StepState.WAITING_HUMAN)
    return locked is not None and locked[1].state in waits and releases.park_if_unknown(*locked, clock.now())


def look_at_unsettled(now: datetime) -> int:
    """Route steps whose effects are in doubt or pending."""
    states = [StepState.NEEDS_RECONCILIATION, StepState.WAITING]
    ended = [str(state) for state in RUN_ENDED]
    steps = all_steps().filter(state__in=states, waits_on="", wake_at__lte=now).exclude(run__state__in=ended)
    steps = steps.filter(judged_here(now, "run"))

    def look(step_id: UUID) -> bool:
        reconcile.route(step_id)
        return True

    return each(steps.order_by("wake_at"), look, line="unsettled effects")


def audit_absent(now: datetime) -> int:
    """Look up once more what was found absent, ended run or not (rule 13)."""
    before = now - timedelta(seconds=settings().RESEND_SECONDS)
    rows = SideEffect.objects.using(database()).filter(state=EffectState.ABSENT, audit_at__lte=now)
    rows = rows.filter(Q(lookup_sent_at__isnull=True) | Q(lookup_sent_at__lt=before))
    rows = rows.exclude(provider__in=providers.left_alone(now))  # it waits, and holds up no other provider's
    return each(rows.order_by("audit_at"), while_open(dispatch.send_lookup), line="audits")


def look_at_inherited(now: datetime) -> int:
    """Ask providers about what abandoned runs left open."""
    rows = abandon.inherited(now).filter(judged_here(now, "run")).exclude(provider__in=providers.left_alone(now))
    return each(rows, while_open(abandon.look_at), line="inherited effects")


def end_lost_audits(now: datetime) -> int:
    """Give an end to audits that nobody can make any more, because the effect's code or its lookup is gone."""
    since = now - timedelta(seconds=settings().UNKNOWN_WORKFLOW_SECONDS)
    rows = SideEffect.objects.using(database()).filter(state=EffectState.ABSENT, audit_at__lt=since)
    known = releases.known_releases(now)
    return each(rows.order_by("audit_at"), lambda pk: reconcile.end_audit_if_lost(pk, known), line="lost audits")


def judge_events(now: datetime) -> int:
    """Judge what providers told and nobody has judged: its run was busy, its effect not there yet, or somebody died."""
    return each(provider_events.due(now), provider_events.settle, line="provider events")


def expire_requests(now: datetime) -> int:
    """Escalate or deny requests whose time is over, unless nobody knows where that would lead."""
    rows = ApprovalRequest.objects.using(database()).filter(state=ApprovalState.OPEN, expires_at__lte=now)
    rows = rows.exclude(run__parked_reason=ParkedReason.INCOMPATIBLE)
    return each(rows.order_by("expires_at"), expiry.expire, line="expired requests")


def end_overdue_runs(now: datetime) -> int:
    """Let runs past their deadline end."""
    runs = WorkflowRun.objects.using(database()).filter(ended_at__isnull=True, deadline_at__lte=now, ending_reason="")
    return each(runs.order_by("deadline_at"), ends.end_overdue, line="deadlines")


def end_idle_runs(now: datetime) -> int:
    """Let runs end in which nothing has happened for longer than they allow. One that a worker is at is not idle."""
    runs = WorkflowRun.objects.using(database()).filter(ended_at__isnull=True, idle_at__lte=now)
    # Long steps may be many, and must not stand before runs in which nothing happens.
    runs = runs.filter(~Exists(all_steps().filter(run=OuterRef("pk"), state=StepState.RUNNING)))
    return each(runs.order_by("idle_at"), ends.end_idle, line="idle runs")


def end_late_cleanups(now: datetime) -> int:
    """Give undos and clean-ups up whose time is over: their runs go on to their end, with an alert."""
    runs = WorkflowRun.objects.using(database()).filter(ended_at__isnull=True, ending_phase__in=PHASES_AT_WORK)
    runs = runs.filter(cleanup_until__lte=now).order_by("cleanup_until")
    return each(runs, ends.end_late_cleanup, line="late clean-ups")


def confirm_ends(now: datetime) -> int:
    """Bring runs that are ending and have become quiet to their clean-up or their end (rule 10)."""
    at_work = all_steps().filter(run=OuterRef("pk"), state__in=[str(state) for state in STEP_OPEN], of_cleanup=True)
    runs = WorkflowRun.objects.using(database()).filter(state__in=[RunState.ENDING, RunState.COMPENSATING])
    runs = runs.exclude(Exists(at_work), ending_phase__in=PHASES_AT_WORK)
    effects = SideEffect.objects.using(database()).filter(run=OuterRef("pk"))
    # Those that wait for a person may be many, and must not stand before those that can end.
    is_open = Q(state__in=[str(state) for state in EFFECT_PENDING]) | Q(settles_at__gt=now)
    runs = runs.filter(~Exists(effects.filter(is_open))).order_by("changed_at")
    return each(runs, ends.confirm_end, line="quiet ends")


SWEEPS: dict[str, Callable[[datetime], int]] = {
    "overdue leases": free_overdue,
    "stale workers": free_stale_workers,
    "due retries": wake_due,
    "timers": end_waits,
    "children": carry_crossings,
    "held steps": providers.let_go_on,
    "unsent steps": send_ready,
    "lost messages": send_unclaimed,
    "unknown releases": park_unknown,
    "provider events": judge_events,
    "unsettled effects": look_at_unsettled,
    "audits": audit_absent,
    "lost audits": end_lost_audits,
    "inherited effects": look_at_inherited,
    "expired requests": expire_requests,
    "unanswerable requests": unanswerable.look_at_all,
    "deadlines": end_overdue_runs,
    "idle runs": end_idle_runs,
    "late clean-ups": end_late_cleanups,
    "quiet ends": confirm_ends,
    "reminders": notices.remind,
    "notices": notices.send_due,
}
"""Name for people -> sweep."""
FREE_LEASES = ("overdue leases", "stale workers")
