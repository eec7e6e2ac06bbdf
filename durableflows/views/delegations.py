"""Lending one's rights to answer for a while: a page that lists what was lent, a form to lend, a button to end it."""

from typing import Any
from uuid import UUID

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from durableflows import api
from durableflows.errors import DurableflowsError, NotFoundError
from durableflows.explain_words import full_stop
from durableflows.reading.lent import lent_by, lent_to
from durableflows.reading.standing import now_of
from durableflows.reading.words import EndForm, LendForm
from durableflows.views.doors import Context, Door
from durableflows.views.words import UNPROCESSABLE


class Delegations(Door):
    """GET shows what I have lent and what was lent to me, POST lends."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.page({"lend": LendForm(initial={"starts": timezone.localdate()})})

    def post(self, request: HttpRequest) -> HttpResponse:
        form = LendForm(request.POST)
        if form.is_valid() and _tried(form, self.lend):
            return HttpResponseRedirect(f"{reverse('durableflows:delegations')}?done=lend")
        return self.page({"lend": form}, status=UNPROCESSABLE)

    def lend(self, given: dict[str, Any]) -> None:
        """Call the verb."""
        days = {"starts": given["starts"], "until": given["until"]}
        api.delegate(given["taker"], by=self.request.user, reason=given["reason"], **days)

    def page(self, more: Context, *, status: int = 200) -> HttpResponse:
        """Show what is lent."""
        person, now = self.request.user, now_of(self.request)
        context = {"mine": lent_by(person, now), "theirs": lent_to(person, now), "done": self.request.GET.get("done")}
        return self.show("delegations.html", {**context, **more}, status=status)


class EndDelegation(Delegations):
    """End one before its time."""

    http_method_names = ["post"]

    def page_of_form(self) -> str:
        return reverse("durableflows:delegations")

    def post(self, request: HttpRequest, delegation_id: UUID) -> HttpResponse:  # type: ignore[override]
        form = EndForm(request.POST)

        def end(given: dict[str, Any]) -> None:
            api.end_delegation(delegation_id, by=request.user, reason=given["reason"])

        if form.is_valid() and _tried(form, end):
            return HttpResponseRedirect(f"{self.page_of_form()}?done=end")
        return self.page({"lend": LendForm(), "end": form, "end_id": delegation_id}, status=UNPROCESSABLE)


def _tried(form: forms.Form, do: Any) -> bool:
    """Do it; False: refused, and the form says why."""
    try:
        do(form.cleaned_data)
    except NotFoundError as error:
        raise Http404(str(error)) from error
    except DurableflowsError as error:
        text = str(error)
        form.add_error(None, full_stop(f"{text[:1].upper()}{text[1:]}"))
    return not form.errors
