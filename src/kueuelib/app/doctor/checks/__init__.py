"""The checks, one topic per module; every module of this package is loaded."""
