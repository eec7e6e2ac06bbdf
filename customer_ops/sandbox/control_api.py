"""What a test or the demo may tell the sandbox: `/_control/…`, JSON in and out.

    POST   /_control/faults      order a fault (fields: `faults.Fault`)
    GET    /_control/faults      orders that are not used up; DELETE withdraws all
    POST   /_control/rate        fail by chance (fields: `faults.Rate`)
    GET    /_control/books       charges, refunds, acts, requests; refunds counted by operation
    POST   /_control/reset       empty books, no faults, listening
    POST   /_control/settle      {refund, status, failure_reason}: end a refund, pending or not
    POST   /_control/webhook     {url, secret}: tell events there; without url: nowhere
    GET    /_control/events      all events, with how far their delivery has come
    GET    /_control/untold      {timeout_seconds}: wait until every event was taken
    POST   /_control/event_faults  order a fault of their delivery (fields: `events.EventFault`)
    POST   /_control/clock       {advance_seconds}: set the provider's clock ahead
    POST   /_control/search_lag  {seconds}: let the search for tickets see only what is older
    GET    /_control/held        {at_least, timeout_seconds}: wait until so many requests are held
    GET    /_control/under_way   {timeout_seconds}: wait until no request is under way
    POST   /_control/release     let all held requests go on
    POST   /_control/listening   {on, seconds}: open or close the provider's port

Owns this table. Called by the server for both ports; needs no account key, which is why the sandbox listens on this
machine only unless told otherwise.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from customer_ops.sandbox import actions, events, log
from customer_ops.sandbox.answers import Answer, ApiError
from customer_ops.sandbox.courier import Endpoint
from customer_ops.sandbox.events import EventFault
from customer_ops.sandbox.faults import Fault, Rate

if TYPE_CHECKING:
    from customer_ops.sandbox.server import Sandbox

Order = dict[str, Any]
M = TypeVar("M", bound=BaseModel)


class _Settle(BaseModel):
    model_config = ConfigDict(extra="forbid")
    refund: str
    status: str
    failure_reason: str = "declined"


class _Webhook(BaseModel):
    model_config = ConfigDict(extra="forbid")
    url: str = ""
    secret: str


class _Clock(BaseModel):
    model_config = ConfigDict(extra="forbid")
    advance_seconds: float


class _SearchLag(BaseModel):
    model_config = ConfigDict(extra="forbid")
    seconds: float = Field(ge=0)


class _Held(BaseModel):
    model_config = ConfigDict(extra="forbid")
    at_least: int = 1
    timeout_seconds: float = 5.0


class _UnderWay(BaseModel):
    model_config = ConfigDict(extra="forbid")
    timeout_seconds: float = 5.0


class _Listening(BaseModel):
    model_config = ConfigDict(extra="forbid")
    on: bool
    seconds: float | None = None


def answer(sandbox: "Sandbox", method: str, path: str, order: Order) -> Answer:
    """Carry out one order. Raises ApiError for one that is unknown or does not fit."""
    action = _ACTIONS.get((method, path.removeprefix("/_control/")))
    if action is None:
        raise ApiError(404, f"No such control: {method} {path}")
    return Answer(200, action(sandbox, order))


def _add_fault(sandbox: "Sandbox", order: Order) -> dict[str, Any]:
    sandbox.provider.plan.add(_read(Fault, order))
    return _faults(sandbox, {})


def _faults(sandbox: "Sandbox", _order: Order) -> dict[str, Any]:
    return {"faults": sandbox.provider.plan.waiting()}


def _clear_faults(sandbox: "Sandbox", _order: Order) -> dict[str, Any]:
    sandbox.provider.plan.clear()
    return _faults(sandbox, {})


def _set_rate(sandbox: "Sandbox", order: Order) -> dict[str, Any]:
    rate = _read(Rate, order)
    sandbox.provider.plan.set_rate(rate)
    return rate.model_dump(mode="json")


def _books(sandbox: "Sandbox", _order: Order) -> dict[str, Any]:
    return log.summary(sandbox.provider.books)


def _reset(sandbox: "Sandbox", _order: Order) -> dict[str, Any]:
    sandbox.reset()
    return {}


def _settle(sandbox: "Sandbox", order: Order) -> dict[str, Any]:
    wanted, books = _read(_Settle, order), sandbox.provider.books
    now = books.now()
    with books.transaction() as tx:
        return actions.settle(tx, wanted.refund, wanted.status, now=now, failure_reason=wanted.failure_reason)


def _set_webhook(sandbox: "Sandbox", order: Order) -> dict[str, Any]:
    wanted = _read(_Webhook, order)
    sandbox.courier.set_endpoint(Endpoint(wanted.url, wanted.secret) if wanted.url else None)
    return {"url": wanted.url}


def _events(sandbox: "Sandbox", _order: Order) -> dict[str, Any]:
    return {"events": events.list_events(sandbox.provider.books), "faults": sandbox.courier.waiting()}


def _untold(sandbox: "Sandbox", order: Order) -> dict[str, Any]:
    return {"untold": sandbox.courier.wait_until_told(timeout_seconds=_read(_UnderWay, order).timeout_seconds)}


def _add_event_fault(sandbox: "Sandbox", order: Order) -> dict[str, Any]:
    sandbox.courier.add(_read(EventFault, order))
    return {"faults": sandbox.courier.waiting()}


def _clock(sandbox: "Sandbox", order: Order) -> dict[str, Any]:
    return {"now": sandbox.provider.books.advance(_read(_Clock, order).advance_seconds)}


def _search_lag(sandbox: "Sandbox", order: Order) -> dict[str, Any]:
    wanted = _read(_SearchLag, order)
    sandbox.provider.search_lag_seconds = wanted.seconds
    return wanted.model_dump()


def _held(sandbox: "Sandbox", order: Order) -> dict[str, Any]:
    wanted = _read(_Held, order)
    return {"held": sandbox.provider.holds.wait_until_held(wanted.at_least, timeout_seconds=wanted.timeout_seconds)}


def _under_way(sandbox: "Sandbox", order: Order) -> dict[str, Any]:
    seconds = _read(_UnderWay, order).timeout_seconds
    return {"under_way": sandbox.provider.holds.wait_until_done(timeout_seconds=seconds)}


def _release(sandbox: "Sandbox", _order: Order) -> dict[str, Any]:
    return {"released": sandbox.provider.holds.release()}


def _listening(sandbox: "Sandbox", order: Order) -> dict[str, Any]:
    wanted = _read(_Listening, order)
    if wanted.on:
        sandbox.listen()
    else:
        sandbox.stop_listening(wanted.seconds)
    return {"on": wanted.on}


def _read(form: type[M], order: Order) -> M:
    try:
        return form.model_validate(order)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ApiError(400, problems) from None


_ACTIONS: dict[tuple[str, str], Callable[["Sandbox", Order], dict[str, Any]]] = {
    ("POST", "faults"): _add_fault,
    ("GET", "faults"): _faults,
    ("DELETE", "faults"): _clear_faults,
    ("POST", "rate"): _set_rate,
    ("GET", "books"): _books,
    ("POST", "reset"): _reset,
    ("POST", "settle"): _settle,
    ("POST", "webhook"): _set_webhook,
    ("GET", "events"): _events,
    ("GET", "untold"): _untold,
    ("POST", "event_faults"): _add_event_fault,
    ("POST", "clock"): _clock,
    ("POST", "search_lag"): _search_lag,
    ("GET", "held"): _held,
    ("GET", "under_way"): _under_way,
    ("POST", "release"): _release,
    ("POST", "listening"): _listening,
}
