"""Template tags of the support desk."""
