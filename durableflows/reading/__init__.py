"""What pages show of approval requests, gathered once for all of them: Django's admin and the inbox.

Reads what `selectors` lets the person see, and says it in words. Never writes: who answers goes through `api`.
"""
