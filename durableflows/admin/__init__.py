"""The engine in Django's admin: every row as evidence that nobody edits, and the page where a request is decided.

Found by Django's autodiscovery. Reads through `selectors` and `api`; the one write is `api.answer`, which checks
rights, facts and expiry for all doors alike. Nothing here adds, changes or deletes a row.
Public of it is `RunsOfSubject` alone, for admin pages of a project.
"""

from durableflows.admin import evidence as evidence
from durableflows.admin import requests as requests
from durableflows.admin import runs as runs
from durableflows.admin.subjects import RunsOfSubject

__all__ = ["RunsOfSubject"]
