"""The runs about an object on its own page in the admin: `class OrderAdmin(RunsOfSubject, admin.ModelAdmin)`.

For a project's `ModelAdmin`, whatever its template or theme: the runs stand in a read-only field. It shows what the
person may see of them, and changes nothing.
"""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from durableflows.templatetags.durableflows import progress_of

if TYPE_CHECKING:
    Page = admin.ModelAdmin[Any]
else:
    Page = object

FIELD = "workflow_runs"


class RunsOfSubject(Page):
    """Adds the field `workflow_runs` to the page of an object that is there; place it in `fields` or `fieldsets`, or
    find it in a part of its own at the end.
    """

    class Media:
        css = {"all": ("durableflows/durableflows.css",)}

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Remember who looks: a read-only field is not told."""
        found = super().get_object(request, object_id, from_field)
        if found is not None:
            found.__dict__["_durableflows_person"] = request.user
        return found

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """With the runs, of an object that is there."""
        fields = [name for name in super().get_readonly_fields(request, obj) if name != FIELD]
        return fields if obj is None else [*fields, FIELD]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """With a part of its own for the runs, unless the project has placed them; without it for a new object."""
        parts = [(name, {**options, "fields": list(options["fields"])}) for name, options in self._parts(request, obj)]
        if obj is None:
            for _name, options in parts:
                options["fields"] = [field for field in options["fields"] if field != FIELD]
        elif not any(FIELD in options["fields"] for _name, options in parts):
            parts.append(("Workflow runs", {"fields": [FIELD]}))
        return parts

    def _parts(self, request: HttpRequest, obj: Any) -> Any:
        return super().get_fieldsets(request, obj)

    @admin.display(description="Workflow runs")
    def workflow_runs(self, obj: Model) -> SafeString:
        """The newest runs about the object, and how far each is."""
        person = obj.__dict__.get("_durableflows_person")
        return render_to_string("durableflows/parts/_run_progress.html", progress_of(obj, person))
