"""What people do with an open request beside answering it: ask who asked, hand it to a colleague; reply, withdraw.

Each is a POST from a form on the request's page and one verb of `api`. Done, the page says so; refused, it comes back
with the form as it was typed and the reason.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar
from uuid import UUID

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect

from durableflows import api
from durableflows.errors import DurableflowsError, NotFoundError
from durableflows.explain_words import full_stop
from durableflows.models import ApprovalRequest
from durableflows.reading.words import AssignForm, QuestionForm, ReplyForm, WithdrawForm
from durableflows.views.asked import asked_address, show_asked
from durableflows.views.decision import decision_address, show_decision
from durableflows.views.doors import Door

UNPROCESSABLE = 422


class Word(Door, ABC):
    """One form on a request's page."""

    http_method_names = ["post"]
    name: ClassVar[str]
    form: ClassVar[type[forms.Form]]
    address: ClassVar[Any] = staticmethod(decision_address)
    show_page: ClassVar[Any] = staticmethod(show_decision)

    def page_of_form(self) -> str:
        return str(self.address(self.kwargs["request_id"]))

    def post(self, request: HttpRequest, request_id: UUID) -> HttpResponse:
        asked, form = self.asked(request_id), self.form(request.POST)
        if form.is_valid() and self.done(asked, form):
            return HttpResponseRedirect(f"{self.page_of_form()}?done={self.name}")
        again: HttpResponse = self.show_page(self, self.asked(request_id), {self.name: form}, status=UNPROCESSABLE)
        return again

    def done(self, asked: ApprovalRequest, form: forms.Form) -> bool:
        """Do it; False: refused, and the form says why."""
        try:
            self.do(asked, form.cleaned_data)
        except NotFoundError as error:
            raise Http404(str(error)) from error
        except DurableflowsError as error:
            text = str(error)
            form.add_error(None, full_stop(f"{text[:1].upper()}{text[1:]}"))
        return not form.errors

    @abstractmethod
    def do(self, asked: ApprovalRequest, given: dict[str, Any]) -> None:
        """Call the verb."""


class Ask(Word):
    """Ask who asked a question, before deciding."""

    name, form = "question", QuestionForm

    def do(self, asked: ApprovalRequest, given: dict[str, Any]) -> None:
        api.ask_requester(asked.pk, given["text"], by=self.request.user)


class Assign(Word):
    """Put it before a colleague who may answer it."""

    name, form = "assign", AssignForm

    def do(self, asked: ApprovalRequest, given: dict[str, Any]) -> None:
        api.reassign(asked.pk, given["to"], by=self.request.user, reason=given["reason"])


class Reply(Word):
    """Reply to what was asked last, as who asked for it."""

    name, form = "reply", ReplyForm
    address, show_page = staticmethod(asked_address), staticmethod(show_asked)

    def do(self, asked: ApprovalRequest, given: dict[str, Any]) -> None:
        api.reply(asked.pk, given["text"], by=self.request.user)


class Withdraw(Word):
    """Take back what one has asked for."""

    name, form = "withdraw", WithdrawForm
    address, show_page = staticmethod(asked_address), staticmethod(show_asked)

    def do(self, asked: ApprovalRequest, given: dict[str, Any]) -> None:
        api.withdraw(asked.pk, by=self.request.user, reason=given["reason"])
