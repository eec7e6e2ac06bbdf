"""The engine in Django's admin: every row as evidence that nobody edits, and the page where a request is decided.

Found by Django's autodiscovery. Reads through `selectors` and `api`; the one write is `api.answer`, which checks
rights, facts and expiry for all doors alike. Nothing here adds, changes or deletes a row.
"""

from durableflows.admin import evidence, requests, runs

__all__ = ["evidence", "requests", "runs"]
