"""The verbs of the support desk. One function, one transaction. Called by views and commands; never calls outside."""

import uuid

from django.contrib.auth.models import AbstractBaseUser, User
from django.db import IntegrityError, transaction

from customer_ops import endings, selectors
from customer_ops.errors import CannotCallOff, FormAlreadySent, MoreThanLeft, OtherLeft, RefundRefused, WrongAmount
from customer_ops.models import MAY_ASK, Charge, RefundRequest
from durableflows import InvalidState, Money, NotAllowed, NotFoundError, TooLate, api
from durableflows.api import Explanation
from durableflows.models import SideEffect, WorkflowRun

LONGEST_REASON = 500
MAY_OPERATE = "durableflows.operate_run"


@transaction.atomic
def request_refund(
    charge_id: int, amount: Money, reason: str, *, by: User, form_token: uuid.UUID, only_if_left: Money | None = None
) -> RefundRequest:
    """Reserve an amount of a charge, and start the refund that pays it.

    Shapes and units   charge_id: primary key of our row; form_token: of the form that was sent; only_if_left:
                       what was shown as all that is left; refuse when another amount is left by now
    Writes / Locks     RefundRequest and a workflow run; locks the charge, so of two at once the second sees the first
    Raises             NotAllowed; MoreThanLeft, OtherLeft, WrongAmount, FormAlreadySent (RefundRefused): nothing was
                       stored; a repeat of the same form by the same person gives the first request
    Crash              before the commit: neither request nor run; after it: both, and the engine goes on by itself
    """
    # Whatever way leads here (R25): a page, a command, another app's code.
    if not by.has_perm(MAY_ASK):
        raise NotAllowed(f"{by.get_username()} may not ask for refunds")
    charge = Charge.objects.select_for_update().get(pk=charge_id)
    _refuse_bad_input(charge, amount, reason)
    first = RefundRequest.objects.filter(form_token=form_token).first()
    if first is not None:
        return _repeat(first, charge, amount, by=by)
    endings.close_ended(charge)
    _refuse_unless_left(amount, selectors.balance(charge).left, only_if_left)
    request = _insert(charge, amount, reason, by=by, form_token=form_token)
    return _start(request, by=by)


def may_call_off(request: RefundRequest, *, by: User) -> bool:
    """Say whether somebody may call a refund off: who asked for it, or who may operate runs."""
    return by.is_active and (request.requested_by_id == by.pk or by.has_perm(MAY_OPERATE))


def call_off(request: RefundRequest, reason: str, *, by: User) -> RefundRequest:
    """Call a refund off. Returns the request as it is then.

    WITHDRAWN: no money has left or will. PENDING: it was sent, and ends when it is known whether it was paid. REFUNDED:
    the money left in the same moment.

    Writes / Locks   asks the engine for the end of the run (locks the run), then frees the charge (locks the charge)
    Raises           NotAllowed; RefundRefused for a bad reason; CannotCallOff when it is settled, or somebody else has
                     called it off: nothing changed. The same again by the same person changes nothing
    Crash            after the engine's commit the run ends by itself, and the charge is freed by `endings`
    """
    if not may_call_off(request, by=by):
        raise NotAllowed(f"{by.get_username()} may not call off a refund that {request.requested_by_name} asked for")
    _refuse_bad_reason(reason)
    request.refresh_from_db()
    run = _cancel(request, reason, by=by)
    if run.cancel_asked_by != by.get_username():
        raise CannotCallOff(f"{run.cancel_asked_by or 'The system'} has called it off already.")
    # The engine's signal does the same, and may be lost; who called it off must see that the charge is free.
    endings.close_run(run.pk)
    request.refresh_from_db()
    return request


def _cancel(request: RefundRequest, reason: str, *, by: User) -> WorkflowRun:
    if request.run_id is None:
        raise CannotCallOff("It was never started, so there is nothing to call off.")
    run = api.get(request.run_id, by=None)
    if run.cancel_asked_at is not None:
        return run
    if not request.is_pending:
        raise CannotCallOff(_too_late(request))
    if SideEffect.objects.filter(run=run, effect="payments.refund", state="CONFIRMED").exists():
        raise CannotCallOff("Too late: the payment provider has paid it already.")
    try:
        return api.cancel(run.pk, by=by, reason=reason)
    except TooLate:
        return _ended_meanwhile(request, run.pk)
    except InvalidState as error:  # such as for a reason of which nothing is seen
        raise RefundRefused(f"It was not called off: {error}.") from error


def _ended_meanwhile(request: RefundRequest, run_id: uuid.UUID) -> WorkflowRun:
    """The run of a request that somebody else has called off. Raises CannotCallOff when it ended otherwise."""
    run = api.get(run_id, by=None)
    if run.cancel_asked_at is None:
        endings.close_run(run.pk)
        request.refresh_from_db()
        raise CannotCallOff(_too_late(request))
    return run


def _too_late(request: RefundRequest) -> str:
    if request.is_pending:  # abandoned with its payment in doubt: who did that has taken it over
        return "Too late: its workflow has ended, and it may have been paid."
    because = f" ({request.ended_because})" if request.ended_because else ""
    return f"Too late: it is {request.get_state_display()} already{because}."


def explain_refund(request: RefundRequest, *, by: User) -> Explanation | None:
    """Say how far a refund is, in words; None for somebody who may not see its run."""
    if request.run_id is None:
        return None
    try:
        return api.explain(request.run_id, by=by)
    except NotFoundError:
        return None


def _refuse_bad_input(charge: Charge, amount: Money, reason: str) -> None:
    if amount.currency != charge.amount.currency:
        raise WrongAmount(f"The charge is in {charge.amount.currency}, the amount is in {amount.currency}.")
    if not amount.is_positive:
        raise WrongAmount("The amount must be more than nothing.")
    _refuse_bad_reason(reason)


def _refuse_bad_reason(reason: str) -> None:
    if not reason.strip():
        raise RefundRefused("A reason is needed: the manager and the history show it.")
    if len(reason) > LONGEST_REASON:
        raise RefundRefused(f"The reason is longer than {LONGEST_REASON} letters.")


def _refuse_unless_left(amount: Money, left: Money, only_if_left: Money | None) -> None:
    if only_if_left is not None and only_if_left != left:
        raise OtherLeft(only_if_left, left=left)
    if amount > left:
        raise MoreThanLeft(amount, left=left)


def _repeat(first: RefundRequest, charge: Charge, amount: Money, *, by: AbstractBaseUser) -> RefundRequest:
    """Give the request that the same form made before. Raises FormAlreadySent when it was not the same."""
    if (first.requested_by_id, first.charge_id, first.asked) != (by.pk, charge.pk, amount):
        raise FormAlreadySent("This form was sent before with other content. Open the order again for a new one.")
    return first


def _insert(charge: Charge, amount: Money, reason: str, *, by: User, form_token: uuid.UUID) -> RefundRequest:
    request = RefundRequest(
        charge=charge,
        reason=reason,
        form_token=form_token,
        requested_by=by,
        requested_by_name=by.get_username(),
    )
    request.amount = amount
    try:
        with transaction.atomic():
            request.save(force_insert=True)
    except IntegrityError:
        # The lock is on one charge: the same token for two charges at the same moment meets only here.
        if not RefundRequest.objects.filter(form_token=form_token).exists():
            raise
        raise FormAlreadySent("This form was sent before for another charge.") from None
    return request


def _start(request: RefundRequest, *, by: User) -> RefundRequest:
    run = api.start(
        "refund",
        {
            "request_id": request.pk,
            "charge_id": request.charge.provider_id,
            "amount": request.amount,
        },
        key=f"refund:{request.pk}",
        by=by,
        subject=request,
    )
    request.run_id = run.pk
    request.save(update_fields=["run_id"])
    return request
