"""The schemas of objects: pruning, defaults, validation, list types."""
