"""Calling a refund off: a page that asks for the reason and says what it means, and the post that does it."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from customer_ops import cards, services
from customer_ops.errors import CannotCallOff, RefundRefused
from customer_ops.forms import CallOffForm
from customer_ops.models import RefundRequest, RefundState
from customer_ops.run_facts import facts_of
from customer_ops.situation import situation_of
from customer_ops.standing import RunFacts, standing_of
from customer_ops.views.doors import UNPROCESSABLE, Door

NOT_YOURS = "Only who asked for a refund calls it off, or somebody who may operate workflows."


class CallOffRefund(Door):
    """GET asks, POST does it. What became impossible meanwhile is said on the order's page."""

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        refund = self._refund(pk)
        if not cards.can_be_called_off(refund, _facts(refund)):
            messages.warning(request, "There is nothing left to call off: this refund has gone too far, or has ended.")
            return _back_to(refund)
        return self._page(refund, CallOffForm())

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        refund, form = self._refund(pk), CallOffForm(request.POST)
        if not form.is_valid():
            return self._page(refund, form, status=UNPROCESSABLE)
        try:
            ended = services.call_off(refund, form.cleaned_data["reason"], by=self.user)
        except CannotCallOff as refusal:
            messages.error(request, f"The refund of {refund.amount.display} was not called off. {refusal}")
            return _back_to(refund)
        except RefundRefused as refusal:
            form.add_error("reason", str(refusal))
            return self._page(refund, form, status=UNPROCESSABLE)
        _say(request, ended)
        return _back_to(refund)

    def _refund(self, pk: int) -> RefundRequest:
        refund = RefundRequest.objects.select_related("charge__order__customer").filter(pk=pk).first()
        if refund is None:
            raise Http404("There is no such refund.")
        if not services.may_call_off(refund, by=self.user):
            raise PermissionDenied(NOT_YOURS)
        return refund

    def _page(self, refund: RefundRequest, form: CallOffForm, *, status: int = 200) -> HttpResponse:
        facts, now = _facts(refund), timezone.now()
        context: dict[str, Any] = {
            "refund": refund,
            "order": refund.charge.order,
            "standing": standing_of(refund.state, facts),
            "situation": situation_of(refund.state, refund.refund_id, facts, now=now),
            "may_have_paid": facts is not None and facts.may_have_paid,
            "form": form,
            "now": now,
        }
        return render(self.request, "customer_ops/call_off.html", context, status=status)


def _facts(refund: RefundRequest) -> RunFacts | None:
    return facts_of([refund.run_id]).get(refund.run_id) if refund.run_id else None


def _say(request: HttpRequest, refund: RefundRequest) -> None:
    """Say what calling off has come to."""
    amount = refund.amount.display
    if refund.state == RefundState.WITHDRAWN:
        messages.success(request, f"The refund of {amount} is called off. No money has left, and the amount is free.")
    elif refund.state == RefundState.REFUNDED:
        messages.error(
            request,
            f"Too late to keep the money: {amount} went back as {refund.refund_id}. The customer got no mail about it.",
        )
    else:
        messages.warning(
            request,
            f"The refund of {amount} is being called off. It was sent already: first it is found out whether it was"
            " paid, and if so, it counts as refunded.",
        )


def _back_to(refund: RefundRequest) -> HttpResponse:
    return redirect(f"{reverse('order', args=[refund.charge.order.number])}#refund-{refund.pk}")
