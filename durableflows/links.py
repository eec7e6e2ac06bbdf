"""Links in mails: minted for one person and one request, and found again by the digest of their token.

A link opens a page and gives no right: whoever comes by it logs in, and the page asks for rights as any door does. The
token itself is in the mail alone; rows keep its SHA-256. Reading changes nothing: mail scanners open links (R24).
"""

import hashlib
import secrets
from datetime import datetime
from typing import Any
from uuid import UUID

from durableflows.core.keys import read_id
from durableflows.models import ApprovalLink, ApprovalRequest
from durableflows.models.compiled import insert
from durableflows.transactions import database

TOKEN_BYTES = 32
LONGEST_TOKEN = 100


def mint(request: ApprovalRequest, person: Any, now: datetime) -> str:
    """Make a link for a person, to the request as it is now; it ends with the request's time. Returns its token."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    link = ApprovalLink(
        request=request,
        person=person,
        person_name=str(person.get_username())[:150],
        token_digest=digest_of(token),
        run_version=request.run_version,
        facts_digest=request.facts_digest,
        binding=request.binding,
        created_at=now,
        expires_at=request.expires_at,
    )
    insert(link, database())
    return token


def digest_of(token: str) -> str:
    """What of a token is kept."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def find(token: str, now: datetime) -> ApprovalLink | None:
    """The link with this token; None for one that never was, or whose time is over."""
    if not token or len(token) > LONGEST_TOKEN:
        return None
    rows = ApprovalLink.objects.using(database()).filter(token_digest=digest_of(token), expires_at__gt=now)
    return rows.select_related("request").first()


def followed(link_id: UUID | str, request: ApprovalRequest, person: Any) -> ApprovalLink | None:
    """The link by whose id a person has come to a request's page: only the own one, to this request."""
    wanted = read_id(link_id)
    if wanted is None or person.pk is None:
        return None
    return ApprovalLink.objects.using(database()).filter(pk=wanted, request=request, person_id=person.pk).first()


def note_use(link: ApprovalLink, now: datetime) -> None:
    """Keep when somebody first decided by a link."""
    ApprovalLink.objects.using(database()).filter(pk=link.pk, used_at__isnull=True).update(used_at=now)
