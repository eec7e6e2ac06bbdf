"""Schema of the domain rows."""
