"""Commands of the domain app, one a module."""
