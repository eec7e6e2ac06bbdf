"""What stands around one request on its page, read at once: its run's story, who decided, looked and said what, the
names of the rights that it asks for, and who has changed it by hand. Each part of the page takes its own from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model

from durableflows import explain_rows
from durableflows.explain_rows import Rows
from durableflows.models import ApprovalDecision, ApprovalRequest, RequestNote, RequestView
from durableflows.models.together import Few, fields_of
from durableflows.reading.who import PERMISSION_FIELDS, asked_after, permissions, titles
from durableflows.rights import Standing, shown_to
from durableflows.transactions import database


@dataclass(frozen=True, slots=True)
class Around:
    """`story`: the rows that an explanation is made of; `titles`: permissions as people know them; `standing`: of the
    person who looks, for this request alone.
    """

    story: Rows
    decisions: list[ApprovalDecision]
    looks: list[RequestView]
    notes: list[RequestNote]
    titles: Mapping[str, str]
    standing: Standing

    @property
    def counted(self) -> list[ApprovalDecision]:
        """The answers that stand."""
        return [one for one in self.decisions if one.voided_at is None]


def read_around(asked: ApprovalRequest, person: Any, now: datetime) -> Around:
    """Read it by one statement, and one more while a step of the run waits for a worker or a provider."""
    standing = shown_to(person, now)
    standing.read_all()
    story, (decisions, looks, notes, named, editors) = explain_rows.read_beside(asked.run, now, *_lists(asked))
    for one in decisions:
        one.request = asked  # whose form says what was changed
    return Around(
        story=story,
        decisions=sorted(decisions, key=lambda one: (one.at, one.pk)),
        looks=sorted(looks, key=lambda one: (one.first_at, one.pk)),
        notes=sorted(notes, key=lambda one: one.number),
        titles=titles(asked_after(asked), named),
        standing=standing.about(asked, editors),
    )


def _lists(asked: ApprovalRequest) -> tuple[Few, ...]:
    alias, users = database(), get_user_model()
    account = (users._meta.pk.attname, users.USERNAME_FIELD)
    return (
        Few(ApprovalDecision.objects.using(alias).filter(request=asked), fields_of(ApprovalDecision)),
        Few(RequestView.objects.using(alias).filter(request=asked), fields_of(RequestView)),
        Few(RequestNote.objects.using(alias).filter(request=asked), fields_of(RequestNote)),
        Few(permissions(asked_after(asked)), PERMISSION_FIELDS),
        Few(asked.editors.using(alias).order_by(), account),
    )
