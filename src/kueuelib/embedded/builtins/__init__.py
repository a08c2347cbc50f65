"""Defaults and validation of the built-in kinds: pure rules on raw objects."""
