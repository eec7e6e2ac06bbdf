"""What a workflow is written with: `Workflow`, `step`, `approval` and `effect`.

Owns the reading of a class body, once, into a frozen definition; `core.check` refuses mistakes and
`core.registry` makes it known. Written by users, read by nobody: the engine reads definitions. Never runs a step.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, get_args

from pydantic import BaseModel

from durableflows.core import check, ending, migrations, pins, registry
from durableflows.core import undo as undoing
from durableflows.core.approval import ApprovalSpec, Expiry, Facts
from durableflows.core.approvers import Band
from durableflows.core.arguments import Arguments
from durableflows.core.definition import (
    Budget,
    EffectDefinition,
    Retry,
    StepDefinition,
    StepKind,
    WorkflowDefinition,
)
from durableflows.core.directives import StepReturn
from durableflows.core.effects import EffectCall, EventReader, LookupAnswer
from durableflows.core.fingerprint import structure_of
from durableflows.core.merge import declared as declared_merges
from durableflows.core.migrations import MigrationDeclaration
from durableflows.core.money import Money
from durableflows.core.payload import JSON
from durableflows.core.refs import StepRef
from durableflows.core.run import Run
from durableflows.core.state import S, WorkflowState
from durableflows.core.until import Expires
from durableflows.errors import InvalidDefinition

R = TypeVar("R")
W = TypeVar("W")
P = ParamSpec("P")


class StepDeclaration:
    """What `@step(...)` and `approval(...)` leave in a class body. As an attribute it gives the step's reference."""

    def __init__(self, definition: StepDefinition) -> None:
        self._definition = definition
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = self._name or name

    def __get__(self, instance: object, owner: type) -> StepRef:
        return StepRef(self._name)

    def named(self, name: str) -> StepDefinition:
        """Give the definition its name. Raises InvalidDefinition when it stands under two names."""
        if name != self._name:
            raise InvalidDefinition(f"{name}: this is step {self._name!r} under a second name: leave it out")
        return replace(self._definition, name=name)


class _StepDecorator:
    def __init__(self, definition: StepDefinition) -> None:
        self._definition = definition

    def __call__(self, function: Callable[[W, Run[S]], StepReturn]) -> StepDeclaration:
        _check_body(function)
        return StepDeclaration(replace(self._definition, function=function))


def step(
    bare: None = None,
    /,
    *,
    to: str | Sequence[str] = (),
    start: bool = False,
    end: bool = False,
    join: bool = False,
    effects: Sequence[EffectDefinition[object]] = (),
    queue: str | None = None,
    retry: Retry | None = None,
    atomic: bool = False,
    timeout_seconds: float = 60.0,
    recheck: Callable[[Run[S]], bool | str | None] | None = None,
    on_refused: str | None = None,
    on_failure: str | None = None,
    permanent: type[Exception] | Sequence[type[Exception]] = (),
    transient: type[Exception] | Sequence[type[Exception]] = (),
) -> _StepDecorator:
    """Make a method a step of the workflow: `@step(to="settle", effects=(refund_payment,))`.

    Shapes and units   to: the steps that it may return, by name; join: wait for all that lead here; recheck: asked
                       before a first send, False or a text (the reason) refuses and goes to on_refused; permanent,
                       transient: your own exceptions, mapped; timeout_seconds: wall time of one try
    Raises             InvalidDefinition, here or when the class is complete
    """
    if bare is not None:
        raise InvalidDefinition("@step without brackets: write @step(to='<next step>') or @step(end=True)")
    return _StepDecorator(
        StepDefinition(
            name="",
            kind=StepKind.TASK,
            to=(to,) if isinstance(to, str) else tuple(to),
            start=start,
            end=end,
            join=join,
            effects=(effects,) if isinstance(effects, EffectDefinition) else tuple(effects),
            queue=queue,
            retry=Retry() if retry is None else retry,
            atomic=atomic,
            timeout_seconds=timeout_seconds,
            recheck=recheck,
            on_refused=on_refused,
            on_failure=on_failure,
            permanent=(permanent,) if isinstance(permanent, type) else tuple(permanent),
            transient=(transient,) if isinstance(transient, type) else tuple(transient),
        )
    )


def approval(
    *,
    title: str,
    shows: Callable[[Run[S]], Facts],
    permission: str = "",
    groups: Sequence[str] = (),
    people: Sequence[str] = (),
    quorum: int = 1,
    bands: Sequence[Band] = (),
    amount: Callable[[Run[S]], Money] | str | None = None,
    edits: type[BaseModel] | None = None,
    approved: str = "",
    rejected: str = "",
    exclude_requester: bool = True,
    exclude_delegate: bool = True,
    expires: Expires = timedelta(days=3),
    remind: Sequence[timedelta] = (),
    on_expiry: Expiry = "deny",
    start: bool = False,
) -> StepDeclaration:
    """Make a step that waits for people: `sign_off = approval(title=..., approved="pay", rejected="tell_customer")`.

    Shapes and units   title: with names of facts in braces; shows: asked when the request is made and again when it is
                       answered; permission: "app_label.codename", or groups, or people: each is enough; quorum: how
                       many must say yes, one no is enough; bands: who, by the amount, instead of these four;
                       amount: the name of a binding fact, or a function of the run; edits: a pydantic model of what
                       an approver may change; remind: spans after asking, less than nothing: before the end
    Raises             InvalidDefinition when the class is complete
    """
    spec = ApprovalSpec(
        title=title,
        shows=shows,
        permission=permission,
        groups=groups,
        people=people,
        quorum=quorum,
        bands=bands,
        amount=amount,
        edits=edits,
        approved=approved,
        rejected=rejected,
        exclude_requester=exclude_requester,
        exclude_delegate=exclude_delegate,
        expires=expires,
        remind=remind,
        on_expiry=on_expiry,
    )
    return StepDeclaration(StepDefinition(name="", kind=StepKind.APPROVAL, to=spec.targets, start=start, approval=spec))


def effect(
    *,
    name: str,
    provider: str,
    receipt: type[R],
    version: int = 1,
    lookup: Callable[..., LookupAnswer[R]] | None = None,
    undo: EffectDefinition[Any] | None = None,
    transactional: bool = False,
    key_window: timedelta | None = None,
    settle_seconds: float = 30.0,
    timeout_seconds: float = 10.0,
    accepted: Callable[[R], bool] | None = None,
    accepted_within: timedelta | None = None,
    resend_when_absent: bool = False,
    left_to_person: bool = False,
    event: EventReader | None = None,
    one_at_a_time: Callable[..., object] | None = None,
) -> Callable[[Callable[Concatenate[EffectCall, P], R]], EffectDefinition[R]]:
    """Make a function an effect: `def refund_payment(call: EffectCall, *, charge_id: str) -> RefundReceipt`.

    Shapes and units   as `EffectDefinition`; lookup: called with the call and the same arguments, after a lost answer;
                       event: pure, body -> EventReading or None, for what the provider tells on its own;
                       one_at_a_time: lambda charge_id, **_: charge_id lets one send a charge be under way at a time;
                       undo: another effect, `def cancel(call: EffectCall, *, charge_id: str, receipt: RefundReceipt)`
    Raises             InvalidDefinition when the function or a number cannot keep the promises
    """

    def declare(function: Callable[Concatenate[EffectCall, P], R]) -> EffectDefinition[R]:
        definition = EffectDefinition(
            name=name,
            provider=provider,
            receipt=receipt,
            function=function,
            arguments=Arguments.of(function, what=f"effect {name}"),
            version=version,
            lookup=lookup,
            key_window=key_window,
            settle_seconds=settle_seconds,
            timeout_seconds=timeout_seconds,
            accepted=accepted,
            accepted_within=accepted_within,
            resend_when_absent=resend_when_absent,
            left_to_person=left_to_person,
            event=event,
            one_at_a_time=one_at_a_time,
            undo=undo,
            transactional=transactional,
        )
        check.check_effect(definition, undo=undo)
        return definition

    return declare


class WorkflowMeta(type):
    """Reads a class that has a `name` in its body, makes it known, and keeps it from being changed."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, object]) -> None:
        super().__init__(name, bases, namespace)
        if "name" in namespace:
            definition = _read(cls)
            type.__setattr__(cls, "definition", definition)
            registry.register(definition)
        elif hasattr(cls, "definition"):
            raise InvalidDefinition(
                f"{name}: it derives from a workflow without a name of its own: give name and version"
            )

    def __setattr__(cls, name: str, value: object) -> None:
        # Python itself sets dunder names while it makes a generic class.
        if not (name.startswith("__") and name.endswith("__")):
            raise InvalidDefinition(_stateless(cls.__name__, name))
        super().__setattr__(name, value)


class Workflow(Generic[S], metaclass=WorkflowMeta):
    """Base of each workflow: `class Refund(Workflow[RefundState])` with name, version, deadline and steps.

    Stateless, as a ModelAdmin is: what must be remembered is in `run.state`. A class without `name` in its body is
    abstract: its steps are inherited, and it is not registered. `on_failure`, `on_cancel`: the step that cleans up
    before a run ends as FAILED or CANCELLED; `cleanup_within`: how long that may take, with all that it leads to.
    `undo_on_failure`, `undo_on_cancel`: what was done is undone then, newest first, by the effects' `undo=`;
    `undo_within`: how long that may take.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    deadline: ClassVar[timedelta]
    budget: ClassVar[Budget] = Budget()
    prompts: ClassVar[Mapping[str, str]] = MappingProxyType({})
    policies: ClassVar[Mapping[str, JSON]] = MappingProxyType({})
    pins: ClassVar[Mapping[str, str]] = MappingProxyType({})
    on_failure: ClassVar[str | None] = None
    on_cancel: ClassVar[str | None] = None
    cleanup_within: ClassVar[timedelta] = ending.DEFAULT_WITHIN
    undo_on_failure: ClassVar[bool] = False
    undo_on_cancel: ClassVar[bool] = False
    undo_within: ClassVar[timedelta] = undoing.DEFAULT_WITHIN
    definition: ClassVar[WorkflowDefinition]

    def __setattr__(self, name: str, value: object) -> None:
        raise InvalidDefinition(_stateless(type(self).__name__, name))


def _stateless(cls: str, name: str) -> str:
    return (
        f"{cls}.{name} cannot be set: a workflow class has no state, the next step may run on another machine. "
        f"Keep the value in run.state; to go on with a step return it, do not call it"
    )


def _read(cls: WorkflowMeta) -> WorkflowDefinition:
    where = cls.__qualname__.rpartition("<locals>.")[2]
    body = _body(cls)
    header = check.check_header(where, body)
    steps = {name: value.named(name) for name, value in body.items() if isinstance(value, StepDeclaration)}
    methods = [name for name, value in body.items() if inspect.isfunction(value)]
    undoes = header.undo_on_failure or header.undo_on_cancel
    check.check_steps(where, steps, methods, header.cleanup, undoes=undoes)
    undo_steps = {one.name: one for one in undoing.steps_of(steps.values())}
    state_type = _state_type(cls, where)
    merges = declared_merges(state_type)
    changes = [value.definition for value in body.values() if isinstance(value, MigrationDeclaration)]
    migrations.check(where, header.version, changes, steps)
    return WorkflowDefinition(
        name=header.name,
        version=header.version,
        doc=inspect.cleandoc(cls.__doc__ or ""),
        state_type=state_type,
        steps=MappingProxyType(steps),
        start=next(declared.name for declared in steps.values() if declared.start),
        deadline=header.deadline,
        budget=header.budget,
        effects=MappingProxyType(
            {used.name: used for declared in (*steps.values(), *undo_steps.values()) for used in declared.effects}
        ),
        structure=structure_of(steps.values(), state_type, on_failure=header.on_failure, on_cancel=header.on_cancel),
        merges=MappingProxyType(merges),
        migrations=MappingProxyType({one.from_version: one for one in changes}),
        pins=pins.read(where, body),
        workflow=cls(),
        on_failure=header.on_failure,
        on_cancel=header.on_cancel,
        cleanup_within=header.cleanup_within,
        undo_on_failure=header.undo_on_failure,
        undo_on_cancel=header.undo_on_cancel,
        undo_within=header.undo_within,
        undo_steps=MappingProxyType(undo_steps),
    )


def _body(cls: type) -> dict[str, object]:
    """Collect what the class and its bases set, as the class itself would find it, bases first."""
    body: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        if base not in (object, Generic):
            body.update(vars(base))
    return {name: value for name, value in body.items() if not name.startswith("__")}


def _state_type(cls: type, where: str) -> type[WorkflowState]:
    """Find RefundState in `class Refund(Workflow[RefundState])`, also behind generic bases of the user's own."""
    for base in cls.__mro__:
        for origin in getattr(base, "__orig_bases__", ()):
            for argument in get_args(origin):
                if isinstance(argument, type) and issubclass(argument, WorkflowState):
                    return argument
    raise InvalidDefinition(f"{where}: its state type is missing: write class {where}(Workflow[YourState])")


def _check_body(function: Callable[..., object]) -> None:
    """Refuse a step body that cannot be called as body(self, run), or that would not run when called."""
    where = function.__qualname__.rpartition("<locals>.")[2]
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidDefinition(f"{where}: a step is a plain `def` without await and yield: a worker calls it once")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise InvalidDefinition(f"{where}: declare it as def {function.__name__}(self, run) ({error})") from None
