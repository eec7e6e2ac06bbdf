"""An app that stands beside the project's own in one of the sites that browser tests visit; see `workflows`."""
