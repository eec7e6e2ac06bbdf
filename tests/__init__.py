"""The tests: a package, so that `python -m tests.services` and `tests.support` never mean another `tests`."""
