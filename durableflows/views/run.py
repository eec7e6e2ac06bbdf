"""The console: the pages of one run. GET only; what changes a run stands in `views.run_actions`."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse

from durableflows.reading import run_page
from durableflows.reading.acting import actions, did
from durableflows.reading.run_ledger import ledger
from durableflows.selectors import may_operate
from durableflows.views.run_doors import RunDoor


class RunPage(RunDoor):
    """How the run stands, what may be done about it, its steps on a line of time, and its diagram."""

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        run = self.run(run_id)
        around = run_page.frame(request, run, "run")
        verbs = {
            "actions": actions(request, run, around["explanation"].safe),
            "did": did(request.GET.get("did", "")),
        }
        return self.show("run.html", {**around, **verbs, **run_page.overview(request, run)})


class RunLedger(RunDoor):
    """What was asked of the outside world, and what is known of it."""

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        run = self.run(run_id)
        around = run_page.frame(request, run, "run-ledger")
        may_say = may_operate(run, request.user)
        return self.show("ledger.html", {**around, **ledger(run, sees=around["sees_values"], may_say=may_say)})


class RunPeople(RunDoor):
    """What people were asked and have decided, and what came from outside."""

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        run = self.run(run_id)
        around = run_page.frame(request, run, "run-people")
        return self.show("people.html", {**around, **run_page.people(request, run, sees=around["sees_values"])})


class RunState(RunDoor):
    """What the run remembers, its limits, and its artifacts."""

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        run = self.run(run_id)
        around = run_page.frame(request, run, "run-state")
        return self.show("state.html", {**around, **run_page.state(run, sees=around["sees_values"])})


class RunHistory(RunDoor):
    """All that happened, a page at a time, and whether it is as it was written."""

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        run = self.run(run_id)
        around = run_page.frame(request, run, "run-history")
        return self.show("history.html", {**around, **run_page.history(request, run, sees=around["sees_values"])})
