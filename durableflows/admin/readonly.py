"""What all of the engine's admin pages share: rows are shown, never added, changed or deleted (R25), and lists stay
fast with a million of them (R39).
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR, ChangeList
from django.core.paginator import Paginator
from django.db.models import JSONField, Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.functional import cached_property

from durableflows import clock
from durableflows.admin.frame import guarded
from durableflows.admin.lists import Table
from durableflows.core import registry
from durableflows.core.events import EventVerdict
from durableflows.core.payload import redact
from durableflows.explain_words import state_words
from durableflows.reading.looking import once, refuse_unstorable, tenants_known
from durableflows.selectors import OPERATE, of_tenants
from durableflows.transactions import database

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
    Pages = Paginator[Any]
else:
    ModelAdmin, Pages = admin.ModelAdmin, Paginator

COUNT_LIMIT = 10_000


class BoundedPaginator(Pages):
    """Counts no further than COUNT_LIMIT: counting a whole table on every page is what makes admin lists slow."""

    limit = COUNT_LIMIT

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        assert isinstance(rows, QuerySet)
        return rows[: self.limit].count()


class ReadOnly(ModelAdmin):
    """A table that is shown. The right to operate runs shows it too, without a right of its own on each table."""

    actions = None
    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 50
    # Ids are UUIDv7: the primary key's index is the order of creation, and it knows no ties.
    ordering: ClassVar[tuple[str, ...]] = ("-id",)
    sortable_by = ()
    # Leads from a row to its tenant's name; empty where rows belong to no run.
    tenant: ClassVar[str] = ""
    # JSON fields that the cells of the list need; all others are left out of it.
    list_loads: ClassVar[tuple[str, ...]] = ()
    # Whoever knows a lease can write as its holder.
    exclude = ("lease_token", "lookup_token", "probe_token", "token_digest")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Read from the engine's database, what is of the person's tenants."""
        rows = super().get_queryset(request).using(database())
        with tenants_known():
            return of_tenants(rows, request.user, self.tenant) if self.tenant else rows

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Filter by the list's own filters alone. By any other field an address could ask letter by letter for what is
        masked or not shown, and would look through every row (R39).
        """
        return lookup in {getattr(one, "parameter_name", None) for one in self.list_filter}

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Model | None:
        """Mask what looks secret in stored values; the row is never saved from here."""
        row: Model | None = super().get_object(request, object_id, from_field)
        if row is not None:
            mask(row)
        return row

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """List rows as the engine's own template shows them."""
        return Table

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Name the list by what it holds; there is nothing to select in it."""
        # The search says so at its field.
        refuse_unstorable(one for one in request.GET.lists() if one[0] != SEARCH_VAR)
        title = str(self.opts.verbose_name_plural).capitalize()
        return guarded(
            super().changelist_view(
                request, {"title": title, "seen_at": once(request, "now", clock.now), **(extra_context or {})}
            )
        )

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show one row, with a way back to all of them."""
        page = f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"
        list_address = reverse(page, current_app=self.admin_site.name)
        extra_context = {
            "list_address": list_address,
            "title": str(self.opts.verbose_name).capitalize(),
            **(extra_context or {}),
        }
        return guarded(super().changeform_view(request, object_id, form_url, extra_context))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to the row's own page: nobody changes rows here, so the admin's log of changes says nothing of them."""
        page = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
        return HttpResponseRedirect(reverse(page, args=[object_id], current_app=self.admin_site.name))

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Show the app to everybody who may see one of its tables."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """The table's own right, or the right to operate runs."""
        return super().has_view_permission(request, obj) or request.user.has_perm(OPERATE)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody: the engine alone writes."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody, superusers neither."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody: it is evidence."""
        return False


class StateFilter(admin.SimpleListFilter):
    """The states that the code knows; asking the table which it holds would read all of it."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        states: type[StrEnum] = model_admin.states
        return [(str(state), state_words(state, model_admin.opts.model_name)) for state in states]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(state=self.value()) if self.value() else queryset


class VerdictFilter(admin.SimpleListFilter):
    """What may become of a provider's event; asking the table which verdicts it holds would read all of it."""

    title = "verdict"
    parameter_name = "verdict"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(str(verdict) or "waiting", str(verdict) or "not judged yet") for verdict in EventVerdict]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        return queryset.filter(verdict="" if self.value() == "waiting" else self.value())


class WorkflowFilter(admin.SimpleListFilter):
    """The workflows that this process knows; of a single one there is nothing to choose."""

    title = "workflow"
    parameter_name = "workflow"
    path: ClassVar[str] = "workflow"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        names = sorted({name for name, _ in registry.known()})
        return [(name, name) for name in names] if len(names) > 1 else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.path: self.value()}) if self.value() else queryset


class WorkflowOfRunFilter(WorkflowFilter):
    """The same, for rows that belong to a run."""

    path = "run__workflow"


def mask(row: Model) -> None:
    """Replace the JSON values of a row in memory by their masked view."""
    for field in row._meta.concrete_fields:
        if isinstance(field, JSONField):
            setattr(row, field.attname, redact(getattr(row, field.attname)))
