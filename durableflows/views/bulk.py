"""The console: one verb on several runs. GET says what it would do to each, a POST does it, row by row."""

from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse

from durableflows.reading.bulk import Bulk
from durableflows.reading.runs import may_act
from durableflows.views.doors import UNSENT
from durableflows.views.run_doors import RunDoor


class BulkAction(RunDoor):
    """A verb that needs nothing but a reason, on the runs that were chosen in the list."""

    def bulk(self) -> Bulk:
        """What was chosen. 403 for who may not operate runs, 400 for a verb that is none in bulk."""
        if not may_act(self.request):
            raise PermissionDenied("The permission durableflows.operate_run is needed.")
        bulk = Bulk(self.request)
        if bulk.verb is None:
            raise BadRequest("There is no such verb in bulk.")
        return bulk

    def get(self, request: HttpRequest) -> HttpResponse:
        bulk = self.bulk()
        return self.show("bulk.html", {**bulk.context(list(bulk.rows())), "is_unsent": UNSENT in request.GET})

    def post(self, request: HttpRequest) -> HttpResponse:
        bulk = self.bulk()
        if not bulk.reason.is_valid():
            return self.show("bulk.html", bulk.context(list(bulk.rows())), status=400)
        return self.show("bulk_done.html", bulk.context(list(bulk.done())))

    def page_of_form(self) -> str:
        """The list: what was chosen is not in an address of its own."""
        return self.request.path.removesuffix("bulk/")
