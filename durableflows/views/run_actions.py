"""The console: what people do with a run. GET shows what a verb would do, a POST with a reason does it."""

from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect

from durableflows.models import WorkflowRun
from durableflows.reading.acting import Acting, may
from durableflows.reading.resolving import Resolving
from durableflows.reading.verbs import VERBS
from durableflows.views.doors import UNSENT
from durableflows.views.run_doors import RunDoor, run_address


class RunAction(RunDoor):
    """One verb on one run."""

    def acting(self, run_id: UUID, verb: str) -> Acting:
        """The verb on the run. 404 for an unknown one, 403 for who may not do it."""
        if verb not in VERBS:
            raise Http404("There is no such verb.")
        run = self.run(run_id)
        refuse_unless(may(verb, run, self.request.user), run)
        return Acting(self.request, run, verb)

    def get(self, request: HttpRequest, run_id: UUID, verb: str) -> HttpResponse:
        return self.show("action.html", self.acting(run_id, verb).context({"is_unsent": UNSENT in request.GET}))

    def post(self, request: HttpRequest, run_id: UUID, verb: str) -> HttpResponse:
        acting = self.acting(run_id, verb)
        if not acting.is_order:
            return self.show("action.html", acting.context({}), status=200 if acting.is_given else 400)
        status, said = acting.order()
        if status == 200:
            return HttpResponseRedirect(f"{run_address(run_id)}?did={verb}")
        return self.show("action.html", acting.context(said), status=status)


class Resolve(RunDoor):
    """What a person says about an effect that is in doubt."""

    def resolving(self, run_id: UUID, effect_id: UUID) -> Resolving:
        """The effect of the run. 404 where it is not of it, 403 for who may not say."""
        run = self.run(run_id)
        refuse_unless(may("resolve", run, self.request.user), run)
        found = Resolving.find(self.request, run, effect_id)
        if found is None:
            raise Http404("There is no such effect.")
        return found

    def get(self, request: HttpRequest, run_id: UUID, effect_id: UUID) -> HttpResponse:
        context = self.resolving(run_id, effect_id).context({"is_unsent": UNSENT in request.GET})
        return self.show("resolve.html", context)

    def post(self, request: HttpRequest, run_id: UUID, effect_id: UUID) -> HttpResponse:
        status, said = self.resolving(run_id, effect_id).order()
        if status == 200:
            return HttpResponseRedirect(f"{run_address(run_id)}?did=resolve")
        return self.show("resolve.html", self.resolving(run_id, effect_id).context(said), status=status)


def refuse_unless(may_do: bool, run: WorkflowRun) -> None:  # noqa: FBT001 - what was found out, not a flag
    """Answer 403 to who sees the run and may not do this with it."""
    if not may_do:
        raise PermissionDenied(f"The permission durableflows.operate_run is needed, in the tenant of run {run.pk}.")
