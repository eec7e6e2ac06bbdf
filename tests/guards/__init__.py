"""Guards that promises rest on, what is left when one is dropped, and what turns red then. `python -m tests.guards`."""
