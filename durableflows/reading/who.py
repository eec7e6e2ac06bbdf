"""Who is asked after whom, and what rights are called: for those who decide and for who asked. Reads only."""

from collections.abc import Iterable

from django.contrib.auth.models import Permission

from durableflows.core.approval import Rung
from durableflows.core.approvers import Approvers
from durableflows.models import ApprovalRequest


def rungs_of(asked: ApprovalRequest) -> list[Rung]:
    """Those who are asked one after the other when nobody answers in time, and how long each has."""
    return [Rung.load(rung, asked.quorum) for rung in asked.ladder[asked.ladder_position :]]


def names_of(those: Iterable[Approvers]) -> dict[str, str]:
    """Permissions as people know them, with the name that an administrator needs: one query for all."""
    known = titles_of(those)
    return {permission: f"“{title}” ({permission})" for permission, title in known.items()}


def titles_of(those: Iterable[Approvers]) -> dict[str, str]:
    """Permissions as people know them: one query for all; without those that are not in the database."""
    permissions = {one.permission for one in those if one.permission}
    codes = [permission.rpartition(".")[2] for permission in permissions]
    rows = Permission.objects.filter(codename__in=codes).values_list("content_type__app_label", "codename", "name")
    found = {f"{app}.{code}": name for app, code, name in rows}
    return {permission: found[permission] for permission in permissions if permission in found}
