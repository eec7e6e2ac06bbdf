"""What Django's system check says about effects that are declared well, and will hurt one day. Registered by `checks`.

What is certainly wrong is an error at import instead: `core.check`. What a client of httpx or requests does by itself
cannot be seen here; the exceptions that it raises show it, and are in doubt then (`core.raised`).
"""

import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.apps import AppConfig
from django.core import checks

from durableflows.conf import settings
from durableflows.core import registry
from durableflows.core.backoff import longest_seconds
from durableflows.core.definition import EffectDefinition, StepDefinition, WorkflowDefinition


def check_effects(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """W007: an effect that nobody can be asked about. W008: retries that outlast a key. W015: nobody tells."""
    found: dict[str, checks.CheckMessage] = {}  # by text: versions of a workflow share effects
    for definition in registry.definitions():
        for message in (*_unanswerable(definition), *_outlasting(definition), *_unheard(definition)):
            found.setdefault(message.msg, message)
    return list(found.values())


def _unanswerable(definition: WorkflowDefinition) -> Iterator[checks.CheckMessage]:
    for effect in definition.effects.values():
        ways = (effect.lookup, effect.key_window, effect.event)
        if not (effect.left_to_person or effect.transactional) and all(way is None for way in ways):
            hint = (
                "Give it lookup=…, to ask what became of it, or key_window=…, when the provider honours keys. Where "
                "there is neither, say left_to_person=True: a person then decides about each lost answer."
            )
            yield checks.Warning(
                f"effect {effect.name} has neither a lookup nor a key window: a lost answer is left to a person",
                hint=hint,
                id="durableflows.W007",
            )


def _unheard(definition: WorkflowDefinition) -> Iterator[checks.CheckMessage]:
    for effect in definition.effects.values():
        is_told = effect.event is not None and effect.accepted_within is not None  # without a bound nobody waits for it
        if effect.accepted is not None and effect.lookup is None and not is_told:
            hint = (
                "Give it lookup=…, to ask how it stands; or event=…, for the provider to tell, with accepted_within=…, "
                "for how long it may take."
            )
            yield checks.Warning(
                f"effect {effect.name} may be accepted and not done yet, and nobody says when it is: a person has to",
                hint=hint,
                id="durableflows.W015",
            )


def _outlasting(definition: WorkflowDefinition) -> Iterator[checks.CheckMessage]:
    for step in definition.all_steps:
        total = timedelta(seconds=longest_seconds(step.retry))
        for effect in _outlasted(step, total):
            hint = "Set Retry(within=…) to less than key_window less settle_seconds, or fewer attempts, or a lower cap."
            yield checks.Warning(
                f"{definition.name}.{step.name} may be tried for {total}, and effect {effect.name} cannot be sent "
                f"again under its key after {effect.resend_window}: what is in doubt then is "
                f"{'looked up' if effect.lookup else 'left to a person'}",
                hint=hint,
                id="durableflows.W008",
            )


def _outlasted(step: StepDefinition, total: timedelta) -> Iterator[EffectDefinition[object]]:
    if step.retry.within is not None:  # compared with the window at import
        return
    for effect in step.effects:
        if effect.resend_window is not None and total > effect.resend_window:
            yield effect


def check_clients(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """W011: a provider's library that retries by itself. Looks only at what the project has imported."""
    retries = getattr(sys.modules.get("stripe"), "max_network_retries", 0)
    if not retries:
        return []
    hint = (
        "Set stripe.max_network_retries = 0, and max_network_retries=0 for each StripeClient, which is not seen here; "
        "nor are retries of a requests or httpx client: leave those off too. One layer retries, and that is the engine."
    )
    return [
        checks.Warning(
            f"stripe tries each request {retries} more times by itself, beside the engine",
            hint=hint,
            id="durableflows.W011",
        )
    ]


def check_providers(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """W014: limits of a provider that no effect has. Silent where no workflow is known: the limits may be of others."""
    used = {effect.provider for definition in registry.definitions() for effect in definition.effects.values()}
    hint = f"Providers of effects that are declared: {', '.join(sorted(used))}. Write the name as the effects have it."
    return [
        checks.Warning(
            f"DURABLEFLOWS['PROVIDERS'] has limits of {name!r}, and no effect is of this provider: they bind nothing",
            hint=hint,
            id="durableflows.W014",
        )
        for name in sorted(set(settings().PROVIDERS) - used)
        if used
    ]


CHECKS = (check_effects, check_clients, check_providers)
