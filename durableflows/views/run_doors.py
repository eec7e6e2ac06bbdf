"""Who comes in to the console: whoever is logged in, and sees of the runs what `selectors` lets the person see."""

from uuid import UUID

from django.http import Http404
from django.urls import reverse

from durableflows.core import log_lines
from durableflows.errors import NotFoundError
from durableflows.models import WorkflowRun
from durableflows.selectors import run_for
from durableflows.views.doors import Door

logger = log_lines.logger("durableflows.pages")


class RunDoor(Door):
    """A page of the console."""

    folder = "runs"
    home = "durableflows:runs"

    def run(self, run_id: UUID) -> WorkflowRun:
        """One run that the person may see. 404 for all others, also when it is somebody else's (S2.25)."""
        try:
            return run_for(run_id, self.request.user)
        except NotFoundError as error:
            logger.warning("%s asked for run %s: not there, or not to be seen", self.request.user, run_id)
            raise Http404("There is no such run, or none that you may see.") from error


def run_address(run_id: UUID) -> str:
    """The address of a run's page in the console."""
    return reverse("durableflows:run", args=[run_id])
