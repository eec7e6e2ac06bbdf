"""Who is asked after whom, and what rights are called: for those who decide and for who asked. Reads only."""

from collections.abc import Iterable, Mapping

from django.contrib.auth.models import Permission
from django.db.models import QuerySet

from durableflows.core.approval import Rung
from durableflows.core.approvers import Approvers
from durableflows.models import ApprovalRequest


def rungs_of(asked: ApprovalRequest) -> list[Rung]:
    """Those who are asked one after the other when nobody answers in time, and how long each has."""
    return [Rung.load(rung, asked.quorum) for rung in asked.ladder[asked.ladder_position :]]


def asked_after(asked: ApprovalRequest) -> list[Approvers]:
    """Who is asked now, and after them; nobody where the rules ask nobody."""
    by = asked.asked_of
    return [] if by is None else [by, *(rung.by for rung in rungs_of(asked))]


def names_of(known: Mapping[str, str]) -> dict[str, str]:
    """Permissions as people know them, `known`, with the name that an administrator needs."""
    return {permission: f"“{title}” ({permission})" for permission, title in known.items()}


def titles_of(those: Iterable[Approvers]) -> dict[str, str]:
    """Permissions as people know them: one query for all; without those that are not in the database."""
    return titles(those, permissions(those).select_related("content_type"))


def permissions(those: Iterable[Approvers]) -> QuerySet[Permission]:
    """The rows of the permissions that these are asked by; `titles` takes those of other apps out."""
    codes = {one.permission.rpartition(".")[2] for one in those if one.permission}
    return Permission.objects.filter(codename__in=codes).order_by()


PERMISSION_FIELDS = ("id", "codename", "name", "content_type__id", "content_type__app_label")
"""What `titles` reads of them."""


def titles(those: Iterable[Approvers], rows: Iterable[Permission]) -> dict[str, str]:
    """The names in these rows."""
    found = {f"{row.content_type.app_label}.{row.codename}": row.name for row in rows}
    wanted = {one.permission for one in those if one.permission}
    return {permission: found[permission] for permission in wanted if permission in found}
