"""Workflows that real workers run in tests: slow steps that a test can see, hold and kill."""
