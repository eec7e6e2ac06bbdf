"""The verbs of the support desk. One function, one transaction. Called by views and commands; never calls outside."""

import uuid

from django.contrib.auth.models import AbstractBaseUser, User
from django.db import IntegrityError, transaction

from customer_ops import endings, selectors
from customer_ops.errors import FormAlreadySent, MoreThanLeft, RefundRefused, WrongAmount
from customer_ops.models import MAY_ASK, Charge, RefundRequest
from durableflows import Money, NotAllowed, NotFoundError, api
from durableflows.api import Explanation

LONGEST_REASON = 500


@transaction.atomic
def request_refund(charge_id: int, amount: Money, reason: str, *, by: User, form_token: uuid.UUID) -> RefundRequest:
    """Reserve an amount of a charge, and start the refund that pays it.

    Shapes and units   charge_id: primary key of our row; form_token: of the form that was sent
    Writes / Locks     RefundRequest and a workflow run; locks the charge, so of two at once the second sees the first
    Raises             NotAllowed; MoreThanLeft, WrongAmount, FormAlreadySent (RefundRefused): nothing was stored; a
                       repeat of the same form by the same person gives the first request
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
    left = selectors.balance(charge).left
    if amount > left:
        raise MoreThanLeft(amount, left=left)
    request = _insert(charge, amount, reason, by=by, form_token=form_token)
    return _start(request, by=by)


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
    if not reason.strip():
        raise RefundRefused("A reason is needed: the manager and the history show it.")
    if len(reason) > LONGEST_REASON:
        raise RefundRefused(f"The reason is longer than {LONGEST_REASON} letters.")


def _repeat(first: RefundRequest, charge: Charge, amount: Money, *, by: AbstractBaseUser) -> RefundRequest:
    """Give the request that the same form made before. Raises FormAlreadySent when it was not the same."""
    if (first.requested_by_id, first.charge_id, first.amount) != (by.pk, charge.pk, amount):
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
