"""The mails that were taken or refused, as Maildir folders: any mail program reads them, and they outlive a restart.

Owns the folder. A refused mail stands in the subfolder `Refused`, with the answer that it got. The envelope stands in
the first lines of each file, so that a header of the same name in the mail itself is never mistaken for it.
"""

import mailbox
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from customer_ops.mailbox.letter import ANSWER, RECIPIENT, SENDER, TAKEN, Letter, read_letter

REFUSED = "Refused"

_MARK = re.compile(r"(\d+)\.M(\d+)P\d+Q(\d+)\.")
_UNFIT = re.compile(r"[\x00-\x1f\x7f]+")


class Store:
    """One folder of mails. `keep` is called by one process at a time; reading is free to all."""

    def __init__(self, folder: Path) -> None:
        for part in ("cur", "new", "tmp"):  # Maildir makes them only together with the folder
            (folder / part).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._taken = mailbox.Maildir(folder, factory=None, create=True)
        self._refused = self._taken.add_folder(REFUSED)

    def keep(self, content: bytes, *, sender: str, recipients: list[str], refusal: str = "") -> str:
        """Keep a mail, on disk when this returns; `refusal` is what its sender was told. Returns its key."""
        envelope = [(SENDER, sender), *((RECIPIENT, name) for name in recipients), (ANSWER, refusal or TAKEN)]
        head = "".join(f"{name}: {_UNFIT.sub(' ', value)}\n" for name, value in envelope)
        folder = self._refused if refusal else self._taken
        return folder.add(head.encode("utf-8", "replace") + content)

    def letters(self, *, recipient: str = "") -> list[Letter]:
        """Give all mails, newest first; of one recipient, or of those whose address holds the text."""
        wanted = recipient.casefold()
        found = (self._read(key, folder) for folder, key in self._keys())
        kept = [letter for letter in found if letter and wanted in " ".join(letter.recipients).casefold()]
        return sorted(kept, key=lambda letter: _order(letter.key), reverse=True)

    def letter(self, key: str) -> Letter | None:
        """Give one mail. The key is only looked up among the names that are there, never made a path."""
        for folder, known in self._keys():
            if known == key:
                return self._read(known, folder)
        return None

    def arrivals(self, message_id: str) -> list[Letter]:
        """Give every mail with a Message-ID, taken or refused, newest first."""
        return [letter for letter in self.letters() if letter.message_id == message_id] if message_id else []

    def _keys(self) -> Iterator[tuple[mailbox.Maildir, str]]:
        for folder in (self._taken, self._refused):
            for key in folder.iterkeys():
                yield folder, key

    def _read(self, key: str, folder: mailbox.Maildir) -> Letter | None:
        try:
            content = folder.get_bytes(key)
        except (KeyError, OSError):  # somebody tidied the folder meanwhile
            return None
        return read_letter(key, content, arrived_at=arrived_at(key))


def count_arrivals(letters: list[Letter]) -> Counter[str]:
    """Count how often each Message-ID was taken. More than once: the same mail was sent again, and arrived again."""
    return Counter(letter.message_id for letter in letters if letter.message_id and not letter.refusal)


def arrived_at(key: str) -> datetime | None:
    """When a mail came, by its file's name; None for a file that somebody else put there."""
    mark = _MARK.match(key)
    return datetime.fromtimestamp(int(mark[1]) + int(mark[2]) / 1e6, UTC) if mark else None


def _order(key: str) -> tuple[int, int, int]:
    mark = _MARK.match(key)
    return (int(mark[1]), int(mark[2]), int(mark[3])) if mark else (0, 0, 0)
