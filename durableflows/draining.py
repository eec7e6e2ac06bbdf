"""Whether this worker takes no new steps: one byte that its processes share. Standard library only.

`celery` opens it before the pool forks; `control` sets it; `tasks` look before a step is claimed.
"""

import mmap


class _Shared:
    page: mmap.mmap | None = None


def open_page() -> None:
    """Share a byte with the children that are forked from now on."""
    _Shared.page = mmap.mmap(-1, 1)


def begin() -> None:
    """Let no process of this worker begin a step any more. Only a new worker does."""
    if _Shared.page is None:
        open_page()
    assert _Shared.page is not None
    _Shared.page[0] = 1


def is_on() -> bool:
    """Is this worker being drained?"""
    return _Shared.page is not None and _Shared.page[0] == 1
