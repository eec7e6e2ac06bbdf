"""The demo: the whole product on one machine, to try by hand or to be played unattended."""
