"""What runs have pinned, kept by digest: the only writer of PinnedContent. Contents are shared by all runs."""

from datetime import datetime

from durableflows.core.payload import JSON, sha256
from durableflows.core.pins import Pins
from durableflows.errors import ChangedOutside, NotFoundError
from durableflows.models import PinnedContent
from durableflows.transactions import database


def keep(pins: Pins, now: datetime) -> None:
    """Store what is not there yet, in the caller's transaction."""
    if not pins.contents:
        return
    rows = [PinnedContent(sha256=digest, content=value, created_at=now) for digest, value in pins.contents.items()]
    PinnedContent.objects.using(database()).bulk_create(rows, ignore_conflicts=True)


def load(digest: str) -> JSON:
    """What has this digest. Raises NotFoundError when it is gone, ChangedOutside when it was."""
    row = PinnedContent.objects.using(database()).filter(sha256=digest).first()
    if row is None:
        raise NotFoundError(f"the content with digest {digest[:12]} that this run pinned is gone")
    content: JSON = row.content
    if sha256(content) != digest:
        raise ChangedOutside(f"the content with digest {digest[:12]} that this run pinned was changed from outside")
    return content
