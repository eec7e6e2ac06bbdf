"""The console: one verb on all runs of a list. Each POST takes a portion; the page says how far it is, and can stop."""

from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse

from durableflows.reading import bulk_all
from durableflows.reading.acting import problems
from durableflows.reading.bulk import DONE, REFUSED
from durableflows.reading.bulk_all import CONFIRM, DO, LOOK, OVER, Course
from durableflows.reading.runs import may_act
from durableflows.reading.verbs import VERBS, ReasonForm
from durableflows.views.doors import UNSENT
from durableflows.views.run_doors import RunDoor


class BulkAll(RunDoor):
    """A verb that needs nothing but a reason, on every run of a list."""

    def get(self, request: HttpRequest) -> HttpResponse:
        course = self.begun(request.GET.get("verb", ""), request.GET.get("back", ""))
        return self.page(course, is_unsent=UNSENT in request.GET)

    def post(self, request: HttpRequest) -> HttpResponse:
        self.refuse_others()
        course = bulk_all.read(request.POST.get("course", ""), request.user)
        if course is None:
            raise BadRequest("This page is too old, or somebody else's: begin again from the list.")
        if "stop" in request.POST:
            bulk_all.stop(course)
        elif course.phase == CONFIRM:
            return self.confirmed(course)
        elif course.phase in (LOOK, DO):
            return self.page(course, rows=bulk_all.go_on(request, course))
        return self.page(course)

    def confirmed(self, course: Course) -> HttpResponse:
        """Begin to do it, with a reason."""
        reason = ReasonForm(self.request.POST)
        if not reason.is_valid():
            return self.page(course, reason=reason, status=400)
        bulk_all.confirm(course, reason.cleaned_data["reason"])
        return self.page(course, rows=bulk_all.go_on(self.request, course))

    def begun(self, verb: str, back: str) -> Course:
        """The list's runs, of which none was looked at. 403 for who may not operate runs, 400 for no verb in bulk."""
        self.refuse_others()
        wanted = bulk_all.verb_of(verb)
        if wanted is None:
            raise BadRequest("There is no such verb in bulk.")
        return bulk_all.begin(self.request, wanted, back if back.startswith("?") else "")

    def refuse_others(self) -> None:
        """403 for who may not operate runs. Each run's tenant is looked at when its turn comes."""
        if not may_act(self.request):
            raise PermissionDenied("The permission durableflows.operate_run is needed.")

    def page(
        self,
        course: Course,
        *,
        rows: object = (),
        reason: ReasonForm | None = None,
        is_unsent: bool = False,
        status: int = 200,
    ) -> HttpResponse:
        """How far it has come, and what can be pressed."""
        context = {
            "course": course,
            "carried": bulk_all.write(course, self.request.user),
            "verb": VERBS[course.verb],
            "rows": rows,
            "reason": reason or ReasonForm(),
            "problems": list(problems(reason)) if reason else [],
            "totals": bulk_all.totals(course),
            "ended": bulk_all.ended(self.request, course) if course.phase == OVER else [],
            "left_out": course.count(REFUSED),
            "done": course.count(DONE),
            "most": bulk_all.MOST,
            "portion": min(bulk_all.PORTION, len(course.left)),
            "back": course.back,
            "is_unsent": is_unsent,
        }
        return self.show("bulk_all.html", context, status=status)

    def page_of_form(self) -> str:
        """The list: how far it was is not in an address."""
        return self.request.path.removesuffix("bulk/all/")
