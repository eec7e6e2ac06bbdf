"""One request: the page where it is decided, and the page after. GET and HEAD show, a POST decides (R24)."""

from functools import partial
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from durableflows import clock, links
from durableflows.core.states import ApprovalState
from durableflows.errors import DurableflowsError, NotFoundError
from durableflows.models import ApprovalLink, ApprovalRequest
from durableflows.reading import deciding
from durableflows.reading.answers import DecisionForm
from durableflows.reading.before import earlier
from durableflows.reading.freed import freed_by
from durableflows.reading.looking import once
from durableflows.reading.others import others
from durableflows.reading.standing import visible
from durableflows.services.requests import differences
from durableflows.views.doors import UNSENT, Context, Door

DOOR, BY_LINK = "inbox", "mail link"
LINK = "link"
"""Names in an address the link in a mail that led here: its id, which is no secret and gives no right."""


def decision_address(request_id: UUID) -> str:
    """The address of a request's decision page."""
    return reverse("durableflows:decision", args=[request_id])


class Decision(Door):
    """Shows all that a person decides on, and takes the answer."""

    def get(self, request: HttpRequest, request_id: UUID) -> HttpResponse:
        asked = self.asked(request_id)
        link = followed(request, asked)
        more: Context = {"is_unsent": UNSENT in request.GET}
        if link is not None and asked.state == ApprovalState.OPEN:  # what its mail showed, and what is true now
            more |= {"changes_of_mail": deciding.sorted_changes(differences(link.binding, asked.binding))}
        return show_decision(self, asked, more)

    def post(self, request: HttpRequest, request_id: UUID) -> HttpResponse:
        asked, form = self.asked(request_id), DecisionForm(request.POST)
        if not form.is_valid():
            return show_decision(self, asked, {"form": form}, status=400)
        link = followed(request, asked)
        try:
            is_repeat = deciding.answer(request, asked, form.cleaned_data, door=BY_LINK if link else DOOR)
        except NotFoundError as error:
            raise Http404(str(error)) from error
        except DurableflowsError as error:
            return self.refuse(self.asked(request_id), form, error)
        if link is not None:
            links.note_use(link, clock.now())
        page = reverse("durableflows:decided", args=[asked.pk])
        return HttpResponseRedirect(f"{page}?again=1" if is_repeat else page)

    def refuse(self, asked: ApprovalRequest, form: DecisionForm, error: DurableflowsError) -> HttpResponse:
        """Show the page again where the person may try again, else what became of the request."""
        refused = deciding.refused(self.request, asked, form, error)
        show = show_decision if refused.may_try_again else show_result
        return show(self, asked, refused.context, status=refused.status)


def followed(request: HttpRequest, asked: ApprovalRequest) -> ApprovalLink | None:
    """The link in a mail by which the person has come, if by any; looked up once."""
    find = partial(links.followed, request.GET.get(LINK, ""), asked, request.user)
    return once(request, f"link to {asked.pk}", find)


def show_decision(door: Door, asked: ApprovalRequest, more: Context, *, status: int = 200) -> HttpResponse:
    """The page of a request as it is now; `more`: forms that were posted, and what became of them."""
    request = door.request
    context = {
        "freed": freed_by(asked),
        "earlier": earlier(asked, visible(request)),
        "others": others(asked, request.user),
        "done": request.GET.get("done", ""),
        **deciding.decision(request, asked, more, door=BY_LINK if followed(request, asked) else DOOR),
    }
    context["may_ask"] = not context["reason"] and asked.requester_id is not None
    context["may_assign"] = not context["reason"]
    return door.show("decision.html", context, status=status)


class Decided(Door):
    """Says what the person has decided, what happens next, and where to go on. A reload decides nothing."""

    def get(self, request: HttpRequest, request_id: UUID) -> HttpResponse:
        asked = self.asked(request_id)
        vote = deciding.vote_of(asked, request.user)
        if vote is None:
            return HttpResponseRedirect(decision_address(asked.pk))
        return show_result(self, asked, deciding.taken(request, asked, vote), status=200)


def show_result(door: Door, asked: ApprovalRequest, more: Context, *, status: int) -> HttpResponse:
    """The page after an answer, taken or not."""
    context = deciding.result(door.request, asked, more)
    following = context["following"]
    context["request_address"] = decision_address(asked.pk)
    context["following_address"] = decision_address(following.pk) if following else ""
    return door.show("result.html", context, status=status)
