"""The key that signs sessions and states when DJANGO_SECRET_KEY is not set: made once, kept in the data folder.

Called by settings, so it imports nothing of the project. Several processes may start at once; all read the same key.
"""

import os
import secrets
from pathlib import Path

FILE_NAME = "secret_key"


def read_or_make_secret_key(folder: Path) -> str:
    """Read the folder's key, or make it (mode 0600)."""
    path = folder / FILE_NAME
    if not path.exists():
        _make(path)
    return path.read_text(encoding="ascii").strip()


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written whole under another name, then linked: nobody reads half a key, and only the first link stays.
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(50))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
