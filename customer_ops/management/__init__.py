"""Commands of the domain app."""
