"""Who is working on what: values that name a lease, and this process's place among the workers."""

import os
import socket
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from durableflows.core.keys import new_token
from durableflows.core.payload import JSON

OVERRUN_MARK = "overran:"
"""Stands before the id of a task whose process reached its hard time limit, in a worker's reports to its ticker."""


DRAINS_MARK = "drains"
"""What a worker that is told to end reports to its ticker."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One attempt of one step. Whoever has the token that stands on the row may write the step (P2)."""

    run_id: UUID
    step_id: UUID
    token: UUID
    attempt_id: UUID
    attempt: int
    workflow: str
    version: int
    step: str
    visit: int
    item_key: str
    must_end_by: datetime

    @property
    def is_held(self) -> bool:
        """Is it an attempt's, and not that of somebody who only looks at the run (`claims.view`)?"""
        return self.token.int != 0


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease with all that the attempt needs to know; no row leaves the claim's transaction."""

    lease: Lease
    data: dict[str, JSON]
    checkpoint_sequence: int
    deadline_at: datetime
    owner_name: str
    tenant: str
    subject: str
    manifest: dict[str, JSON]
    had_sends: bool
    claimed_at: datetime
    input: dict[str, JSON] = field(default_factory=dict)
    is_item: bool = False
    trace_context: dict[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Which worker a ticker speaks for. `parent`: the worker's pid, 0 for a ticker on its own."""

    boot_id: UUID
    name: str
    parent: int
    queues: tuple[str, ...]


@dataclass(slots=True)
class _Here:
    boot_id: UUID
    name: str


_here = _Here(new_token(), f"{socket.gethostname()}:{os.getpid()}")


def boot_id() -> UUID:
    """The id of this worker's start; forked children share it with their parent."""
    return _here.boot_id


def worker_name() -> str:
    """The worker's name, for people."""
    return _here.name


def begin_worker(name: str) -> UUID:
    """Give this process a new boot id before it forks its children."""
    _here.boot_id, _here.name = new_token(), name
    return _here.boot_id
