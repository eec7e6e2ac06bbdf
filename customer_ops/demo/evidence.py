"""What a refund left behind outside our rows: the provider's books, the mails that went out, the page that people read.

A story is believed by these alone. What our own rows say is compared with them, never taken for them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from customer_ops.models import RefundRequest
from customer_ops.sandbox.control import BooksView
from durableflows import Money
from durableflows.models import SideEffect

REFUNDS = "/v1/refunds"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The provider's books and the mail folder, as to one refund request."""

    refunds: list[Money]
    """Each time the provider moved money of this charge back, under whatever key."""
    sends: int
    keys: int
    mails: int
    repeated: list[dict[str, Any]]

    def __str__(self) -> str:
        moved = ", ".join(map(str, self.refunds))
        return f"{_count(len(self.refunds), 'refund')}{f' of {moved}' if moved else ''} at the provider"

    @property
    def told(self) -> str:
        """How often the customer was written to."""
        return "mail sent" if self.mails == 1 else _count(self.mails, "mail")

    @property
    def asked(self) -> str:
        """How often the provider was asked for the refund."""
        return f"{_count(self.sends, 'send')} under {_count(self.keys, 'key')}"


def collect(books: BooksView, mail_folder: Path, request: RefundRequest) -> Evidence:
    """Read the books and the mail folder."""
    charge = request.charge.provider_id
    sends = [sent for sent in books.requests_to(REFUNDS) if sent["params"].get("charge") == charge]
    return Evidence(
        refunds=[Money(act["amount"], act["currency"].upper()) for act in books.refund_acts if act["charge"] == charge],
        sends=len(sends),
        keys=len({sent["idempotency_key"] for sent in sends}),
        mails=_mails(mail_folder, request),
        repeated=books.repeated,
    )


def _mails(folder: Path, request: RefundRequest) -> int:
    """How many messages of this request's run lie in the folder."""
    keys = SideEffect.objects.filter(run_id=request.run_id, effect="mail.send").values_list("key", flat=True)
    texts = [file.read_text(errors="replace") for file in folder.glob("*.log")]
    return sum(text.count(f"<{key}@") for key in keys for text in texts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
