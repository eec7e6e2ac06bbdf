"""Are the prompts and policies that runs have pinned there, and as they were? (P8, P13) Reads only."""

from collections.abc import Iterator, Sequence

from durableflows.doctor.findings import Found
from durableflows.doctor.rows import CHUNK, digest_of
from durableflows.models import PinnedContent, WorkflowRun
from durableflows.transactions import database

KINDS = ("prompts", "policies")


def lost_pins(runs: Sequence[WorkflowRun]) -> Iterator[Found]:
    """Each run that has pinned what is not there any more."""
    pinned = {run.pk: _pinned_by(run) for run in runs}
    rows = PinnedContent.objects.using(database()).filter(pk__in={one for some in pinned.values() for one in some})
    known = set(rows.values_list("pk", flat=True))
    for run in runs:
        for digest in sorted(pinned[run.pk] - known):
            yield "pinned-changed", run.pk, f"the content with digest {digest[:12]}, which it has pinned, is gone"


def _pinned_by(run: WorkflowRun) -> set[str]:
    manifest = run.manifest if isinstance(run.manifest, dict) else {}
    groups = [group for kind in KINDS if isinstance(group := manifest.get(kind), dict)]
    return {str(digest) for group in groups for digest in group.values()}


def changed_contents() -> Iterator[Found]:
    """Each content that is not what its digest says; runs share them."""
    for row in PinnedContent.objects.using(database()).order_by("pk").iterator(chunk_size=CHUNK):
        if digest_of(row.content) != row.sha256:
            yield "pinned-changed", None, f"the content with digest {row.sha256[:12]} was changed from outside"
