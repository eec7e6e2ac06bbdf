"""The tests. A package, so that `python -m tests.services` and imports of `tests.support` never find another `tests`."""
