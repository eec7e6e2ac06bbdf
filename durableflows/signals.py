"""Signals for outsiders, sent after commit; the engine itself never listens, and they are not durable.

`run_event`   run_id: UUID, kind: str ("step.claimed"), data: dict, at: datetime, actor_name: str
`provider_changed`   provider: str, state: str ("open", "paused", "closed"), reason: str, at: datetime, actor_name: str
`alert`       run_id: UUID, text: str: something that a person must see (a contradiction, a late receipt)
"""

from django.dispatch import Signal

run_event = Signal()
provider_changed = Signal()
alert = Signal()
