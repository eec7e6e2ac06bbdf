"""Lists as the engine's own template shows them: the same under stock admin, django-unfold and others.

`change_list.html` reads this instead of the theme's tags, so that rows turn into blocks on a phone, and filters are
one form that works without scripts. Reads what the admin has queried; asks the database nothing itself.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.utils import label_for_field, lookup_field
from django.contrib.admin.views.main import PAGE_VAR, SEARCH_VAR, ChangeList
from django.db.models import JSONField, Model, QuerySet
from django.http import HttpRequest
from django.utils.text import Truncator

from durableflows.explain_words import state_words
from durableflows.templatetags.durableflows import fact, time

CELL_LIMIT = 200


def _payloads(model: Any) -> set[str]:
    return {field.name for field in model._meta.concrete_fields if isinstance(field, JSONField)}


class Table(ChangeList):
    """A list of rows with words in its cells."""

    search_name = SEARCH_VAR

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """Leave payloads out that no cell shows: a page of runs must not load what each of them remembers (R31)."""
        rows = super().get_queryset(request, exclude_parameters)
        loads: tuple[str, ...] = getattr(self.model_admin, "list_loads", ())
        joined = rows.query.select_related
        left_out = _payloads(self.model) - set(loads)
        for name in joined if isinstance(joined, dict) else ():
            left_out |= {f"{name}__{field}" for field in _payloads(self.opts.get_field(name).related_model)}
        return rows.defer(*left_out)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """The list's own order, which an index gives: an address that asks for another would sort every row (R39)."""
        return list(self.model_admin.get_ordering(request))

    @property
    def nothing(self) -> str:
        """What an empty list says."""
        is_narrowed = bool(self.query or any(spec.value() for spec in self.selects))
        return "Nothing was found." if is_narrowed else "There is nothing to show."

    @property
    def headings(self) -> list[str]:
        """What stands over each column."""
        return [str(label_for_field(name, self.model, self.model_admin)) for name in self.columns]

    @property
    def columns(self) -> list[str]:
        """The columns without the boxes for actions, of which there are none."""
        return [str(name) for name in self.list_display if name != "action_checkbox"]

    @property
    def rows(self) -> Iterator[tuple[str, list[tuple[str, str]], object]]:
        """Each row: where it leads, its cells with their headings, and its key."""
        headings = self.headings
        for row in self.result_list:
            cells = [self.cell(name, row) for name in self.columns]
            yield self.url_for_result(row), list(zip(headings, cells, strict=True)), row.pk

    def cell(self, name: str, row: Model) -> str:
        """Say one value in words; only `time` makes markup, of nothing but the time."""
        field, _attribute, value = lookup_field(name, row, self.model_admin)
        if isinstance(value, datetime):
            return time(value)
        if field is not None and name == "state":
            return state_words(value, self.opts.model_name or "")
        return Truncator(fact(str(value) if isinstance(value, Model) else value)).chars(CELL_LIMIT)

    @property
    def several_address(self) -> str:
        """Where chosen rows are sent; '' where there is nothing to choose them for."""
        return ""

    @property
    def tabs(self) -> list[Any]:
        """The choices of the filter that is shown as tabs, if there is one."""
        specs = [spec for spec in self.filter_specs if getattr(spec, "as_tabs", False)]
        return list(specs[0].choices(self)) if specs else []

    @property
    def selects(self) -> list[SimpleListFilter]:
        """The filters that are shown as select boxes."""
        specs = [spec for spec in self.filter_specs if isinstance(spec, SimpleListFilter)]
        return [spec for spec in specs if not getattr(spec, "as_tabs", False)]

    @property
    def kept(self) -> list[tuple[str, str]]:
        """What the form of search and filters sends along without showing it."""
        shown = {SEARCH_VAR, PAGE_VAR, *(spec.parameter_name for spec in self.selects)}
        return [(name, value) for name, value in self.params.items() if name not in shown]

    @property
    def earlier(self) -> str:
        """Where the page before this one is; '' on the first."""
        return self.get_query_string({PAGE_VAR: self.page_num - 1}) if self.page_num > 1 else ""

    @property
    def later(self) -> str:
        """Where the page after this one is; '' on the last."""
        is_last = self.page_num >= self.paginator.num_pages
        return "" if is_last else self.get_query_string({PAGE_VAR: self.page_num + 1})
