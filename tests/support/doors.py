"""Every way into a decision, behind the same three words: look, answer, and what came of it.

R10 and R22 to R27 are tried at each of them: tests/console/test_every_door.py, tests/concurrency/test_doors_at_once.py.
A door is entered by a person, who has the same session until the visit ends, whatever happens to the account meanwhile.
A new way into a decision gets a class here and a line in DOORS.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from html import unescape
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from durableflows import FactsChanged, NotAllowed, NotFoundError, TooLate, api, clock, links
from durableflows.models import ApprovalLink, ApprovalRequest
from durableflows.selectors import may_answer
from durableflows.services.requests import request_for

Response = Any


class Outcome(StrEnum):
    """What came of an answer."""

    TAKEN = "taken"
    AGAIN = "again"
    LATE = "late"
    CHANGED = "changed"
    REFUSED = "refused"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of an answer, and what the person reads."""

    outcome: Outcome
    text: str

    @property
    def is_shut(self) -> bool:
        """Was the person turned away, whatever the request?"""
        return self.outcome in (Outcome.REFUSED, Outcome.GONE)


@dataclass(frozen=True, slots=True)
class Look:
    """What a person is shown: the words, the digest of the facts, and whether an answer is offered."""

    text: str
    digest: str = ""
    offers: bool = False


class Visit(ABC):
    """A person at a door. `is_web`: there are pages, addresses and methods to try."""

    is_web = True

    def __init__(self, person: User | None) -> None:
        self.person = person

    @abstractmethod
    def look(self, asked: ApprovalRequest) -> Look:
        """Look at a request."""

    @abstractmethod
    def answer(self, asked: ApprovalRequest, verdict: str = "approve", *, digest: str = "", comment: str = "") -> Reply:
        """Answer it, for the facts of this digest; those that the row has, if none is given."""


class Api(Visit):
    """A project's own code."""

    is_web = False

    def look(self, asked: ApprovalRequest) -> Look:
        person = self._person()
        try:
            found = request_for(asked.pk, person)
        except NotFoundError as error:
            return Look(str(error))
        return Look(found.title, found.facts_digest, found.state == "OPEN" and may_answer(found, person))

    def answer(self, asked: ApprovalRequest, verdict: str = "approve", *, digest: str = "", comment: str = "") -> Reply:
        person = self._person()
        had = asked.decisions.filter(actor_id=person.pk, verdict=verdict, voided_at__isnull=True).exists()
        try:
            api.answer(asked.pk, verdict, by=person, facts_digest=digest or asked.facts_digest, comment=comment)
        except FactsChanged as error:
            return Reply(Outcome.CHANGED, str(error))
        except TooLate as error:
            return Reply(Outcome.LATE, str(error))
        except NotAllowed as error:
            return Reply(Outcome.REFUSED, str(error))
        except NotFoundError as error:
            return Reply(Outcome.GONE, str(error))
        return Reply(Outcome.AGAIN if had else Outcome.TAKEN, "")

    def _person(self) -> Any:
        """As each request of a web page reads the account anew."""
        assert self.person is not None
        return User.objects.get(pk=self.person.pk)


class Web(Visit):
    """A door of pages. `strict`: as a browser whose token for forms is looked at."""

    def __init__(self, person: User | None, *, strict: bool = False) -> None:
        super().__init__(person)
        self.client = Client(enforce_csrf_checks=strict)
        if person is not None:
            self.client.force_login(person)

    @abstractmethod
    def address(self, asked: ApprovalRequest) -> str:
        """Where the request is looked at."""

    @abstractmethod
    def target(self, asked: ApprovalRequest) -> str:
        """Where the answer is posted."""

    @abstractmethod
    def fields(self, asked: ApprovalRequest, verdict: str, digest: str, comment: str) -> Mapping[str, str]:
        """What is posted."""

    @abstractmethod
    def judge(self, response: Response) -> Reply:
        """What a response means."""

    def look(self, asked: ApprovalRequest) -> Look:
        response = self.client.get(self.address(asked), follow=True)
        page = words_of(response)
        digests = re.findall(r'name="(?:facts_digest|request)" value="(?:[0-9a-f-]{36}:)?([0-9a-f]{64})"', page)
        return Look(page, digests[0] if digests else "", bool(digests) and 'name="verdict"' in page)

    def answer(self, asked: ApprovalRequest, verdict: str = "approve", *, digest: str = "", comment: str = "") -> Reply:
        fields = self.fields(asked, verdict, digest or asked.facts_digest, comment)
        return self.judge(self.client.post(self.target(asked), fields))


class Admin(Web):
    """The decision page of Django's admin."""

    def address(self, asked: ApprovalRequest) -> str:
        return reverse("admin:durableflows_approvalrequest_decide", args=[asked.pk])

    def target(self, asked: ApprovalRequest) -> str:
        return self.address(asked)

    def fields(self, asked: ApprovalRequest, verdict: str, digest: str, comment: str) -> Mapping[str, str]:
        return {"verdict": verdict, "facts_digest": digest, "comment": comment}

    def judge(self, response: Response) -> Reply:
        return judge_page(response, after="/decided/")


class Inbox(Admin):
    """The decision page of the inbox."""

    def address(self, asked: ApprovalRequest) -> str:
        return reverse("durableflows:decision", args=[asked.pk])


class MailLink(Inbox):
    """The inbox's page as a link in a mail opens it, with the link's id in the address of the form."""

    def __init__(self, person: User | None, *, strict: bool = False) -> None:
        super().__init__(person, strict=strict)
        self._links: dict[Any, tuple[str, Any]] = {}

    def address(self, asked: ApprovalRequest) -> str:
        return reverse("durableflows:link", args=[self._link(asked)[0]])

    def target(self, asked: ApprovalRequest) -> str:
        return f"{super().address(asked)}?link={self._link(asked)[1]}"

    def _link(self, asked: ApprovalRequest) -> tuple[str, Any]:
        """Token and id of the mail's link: to whoever is here, or of somebody else's mail that a stranger has found."""
        if asked.pk not in self._links:
            token = links.mint(asked, self.person or User.objects.earliest("pk"), clock.now())
            self._links[asked.pk] = (token, ApprovalLink.objects.get(token_digest=links.digest_of(token)).pk)
        return self._links[asked.pk]


class Several(Web):
    """The admin's page that answers several at once, with one row."""

    def address(self, asked: ApprovalRequest) -> str:
        return f"{self.target(asked)}?request={asked.pk}"

    def target(self, asked: ApprovalRequest) -> str:
        return reverse("admin:durableflows_approvalrequest_several")

    def fields(self, asked: ApprovalRequest, verdict: str, digest: str, comment: str) -> Mapping[str, str]:
        return {"request": f"{asked.pk}:{digest}", "verdict": verdict, "comment": comment}

    def judge(self, response: Response) -> Reply:
        if response.status_code != 200:
            return judge_page(response, after="never")
        page = words_of(response)
        (outcome,) = re.findall(r'data-outcome="(\w+)"', page)
        return Reply(Outcome(outcome), page)


def judge_page(response: Response, *, after: str) -> Reply:
    """What a response of a decision page means. `after`: what stands in the address of the page that follows."""
    page = words_of(response)
    if response.status_code == 302:
        target = response["Location"]
        if after not in target:
            return Reply(Outcome.REFUSED, target)  # to the log-in
        return Reply(Outcome.AGAIN if "again=1" in target else Outcome.TAKEN, target)
    if response.status_code == 409:
        is_changed = "facts have changed" in page
        return Reply(Outcome.CHANGED if is_changed else Outcome.LATE, page)
    return Reply({403: Outcome.REFUSED, 404: Outcome.GONE}[response.status_code], page)


def words_of(response: Response) -> str:
    """A page as it is read, with its tags."""
    return unescape(response.content.decode())


DOORS: Mapping[str, type[Visit]] = {
    "api": Api,
    "admin page": Admin,
    "admin, several at once": Several,
    "inbox page": Inbox,
    "mail link": MailLink,
}
"""By name. See the module's text."""
WEB: Mapping[str, type[Web]] = {name: door for name, door in DOORS.items() if issubclass(door, Web)}
"""Those with pages."""
