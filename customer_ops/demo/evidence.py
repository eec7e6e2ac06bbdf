"""What a refund left behind outside our rows: the provider's books, the mails that went out, the page that people read.

A story is believed by these alone. What our own rows say is compared with them, never taken for them.
"""

from dataclasses import dataclass
from typing import Any

from customer_ops.mailbox.letter import Letter
from customer_ops.mailbox.store import Store
from customer_ops.models import RefundRequest
from customer_ops.sandbox.control import BooksView
from durableflows import Money
from durableflows.models import SideEffect

REFUNDS = "/v1/refunds"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The provider's books and the mail server's, as to one refund request."""

    refunds: list[Money]
    """Each time the provider moved money of this charge back, under whatever key."""
    sends: int
    keys: int
    letters: list[Letter]
    """Each mail to the customer that a server read, newest first: taken or refused."""
    repeated: list[dict[str, Any]]

    def __str__(self) -> str:
        moved = ", ".join(map(str, self.refunds))
        return f"{_count(len(self.refunds), 'refund')}{f' of {moved}' if moved else ''} at the provider"

    @property
    def mails(self) -> int:
        """How many mails a server took."""
        return len([letter for letter in self.letters if not letter.refusal])

    @property
    def told(self) -> str:
        """How often the customer was written to."""
        return "mail sent" if self.mails == 1 else _count(self.mails, "mail")

    @property
    def asked(self) -> str:
        """How often the provider was asked for the refund."""
        return f"{_count(self.sends, 'send')} under {_count(self.keys, 'key')}"


def collect(books: BooksView, mailbox: Store, request: RefundRequest) -> Evidence:
    """Read the provider's books and the mailbox."""
    charge = request.charge.provider_id
    sends = [sent for sent in books.requests_to(REFUNDS) if sent["params"].get("charge") == charge]
    return Evidence(
        refunds=[Money(act["amount"], act["currency"].upper()) for act in books.refund_acts if act["charge"] == charge],
        sends=len(sends),
        keys=len({sent["idempotency_key"] for sent in sends}),
        letters=_letters(mailbox, request),
        repeated=books.repeated,
    )


def _letters(mailbox: Store, request: RefundRequest) -> list[Letter]:
    """The mails of this request's run, to its customer and to nobody else."""
    keys = SideEffect.objects.filter(run_id=request.run_id, effect="mail.send").values_list("key", flat=True)
    starts = tuple(f"<{key}@" for key in keys)
    address = request.charge.order.customer.email
    sent = [letter for letter in mailbox.letters() if letter.message_id.startswith(starts)]
    return [letter for letter in sent if letter.recipients == [address]]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
