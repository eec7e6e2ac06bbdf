"""The console: the list of runs that a person may see, narrowed, searched and paged."""

from django.http import HttpRequest, HttpResponse

from durableflows.reading import runs
from durableflows.views.run_doors import RunDoor


class RunList(RunDoor):
    """Runs under a saved view, narrowed by fields, a page at a time."""

    def get(self, request: HttpRequest) -> HttpResponse:
        choice = runs.chosen(request.GET)
        window = runs.page(request, choice)
        context = {
            "choice": choice,
            "rows": runs.listed(window.rows, request),
            "tabs": list(runs.tabs(choice)),
            "selects": list(runs.selects(choice)),
            "texts": list(runs.texts(choice)),
            "sorts": runs.SORTS,
            "means": runs.MEANS[choice.show],
            "nothing": runs.NOTHING[choice.show],
            "may_act": runs.may_act(request),
            "earlier": choice.address(before=window.earlier) if window.earlier else "",
            "later": choice.address(after=window.later) if window.later else "",
            "first": choice.address() if choice.after or choice.before else "",
        }
        return self.show("list.html", context)
