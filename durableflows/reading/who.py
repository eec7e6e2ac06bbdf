"""Who is asked, and when it goes to whom: the rungs of a request in words, for those who decide and for who asked.

Permissions are named as people know them, with the name that an administrator needs. One query for all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Permission

from durableflows.models import ApprovalRequest


@dataclass(frozen=True, slots=True)
class Asked:
    """Those who are asked at a time: a right, groups and people, of whom anybody may answer."""

    permission: str
    groups: Sequence[str] = ()
    people: Sequence[str] = ()

    def words(self, names: Mapping[str, str]) -> str:
        """ "people of finance, or anna"; `names`: what permissions are called."""
        found = [f"people of {group}" for group in self.groups] + list(self.people)
        if self.permission:
            found.append(f"people with the permission {names.get(self.permission, self.permission)}")
        return _or(found) or "nobody"


def asked_now(asked: ApprovalRequest) -> Asked:
    """Those who are asked at present."""
    return Asked(asked.permission, getattr(asked, "groups", ()), getattr(asked, "people", ()))


def asked_later(asked: ApprovalRequest) -> list[Asked]:
    """Those who are asked one after the other when nobody answers in time."""
    return [asked_at(rung) for rung in asked.ladder[asked.ladder_position :]]


def asked_at(rung: Mapping[str, Any]) -> Asked:
    """Those whom a rung of the ladder asks."""
    return Asked(str(rung.get("permission", "")), rung.get("groups", ()), rung.get("people", ()))


def names_of(those: Iterable[Asked]) -> dict[str, str]:
    """Permissions as people know them, with the name that an administrator needs: one query for all."""
    permissions = {one.permission for one in those if one.permission}
    codes = [permission.rpartition(".")[2] for permission in permissions]
    rows = Permission.objects.filter(codename__in=codes).values_list("content_type__app_label", "codename", "name")
    words = {f"{app}.{code}": f"“{name}” ({app}.{code})" for app, code, name in rows}
    return {permission: words.get(permission, permission) for permission in permissions}


def _or(found: Sequence[str]) -> str:
    return f"{', '.join(found[:-1])} or {found[-1]}" if len(found) > 1 else "".join(found)
