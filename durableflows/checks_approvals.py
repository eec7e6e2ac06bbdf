"""What Django's system check says about who is asked: permissions that nobody can be given. Registered by `checks`."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.contrib.auth import get_permission_codename
from django.core import checks

from durableflows.core import registry
from durableflows.core.approval import ApprovalSpec
from durableflows.core.wording import did_you_mean


def check_permissions(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """W021: an approval asks people with a permission that no model declares, so nobody has it but superusers."""
    known = _declared()
    found: dict[str, checks.CheckMessage] = {}  # by text: versions of a workflow share approvals
    for definition in registry.definitions():
        for step in definition.steps.values():
            for permission in _asked(step.approval) if step.approval else ():
                if permission not in known:
                    message = _unknown(f"{definition.name}.{step.name}", permission, known)
                    found.setdefault(message.msg, message)
    return list(found.values())


def _unknown(name: str, permission: str, known: Sequence[str]) -> checks.CheckMessage:
    hint = (
        "Write it as app_label.codename, and declare it in Meta.permissions of a model. Silence this where a log-in "
        "backend of your own knows it."
    )
    return checks.Warning(
        f"approval {name} asks people with the permission {permission!r}, which no model declares"
        f"{did_you_mean(permission, known)}",
        hint=hint,
        id="durableflows.W021",
    )


def _asked(spec: ApprovalSpec) -> Iterator[str]:
    """The permissions by which people are asked, at first and later, each once."""
    bands = [band.by.permission for band in spec.bands if band.by is not None]
    found = [spec.permission, *bands, *(rung.permission for rung in spec.ladder())]
    yield from dict.fromkeys(filter(None, found))


def _declared() -> list[str]:
    """All permissions that Django makes for this project's models."""
    found = []
    for model in apps.get_models(include_auto_created=True):
        options = model._meta
        codes = [get_permission_codename(action, options) for action in options.default_permissions]
        codes += [code for code, _name in options.permissions]
        found += [f"{options.app_label}.{code}" for code in codes]
    return found


CHECKS = (check_permissions,)
