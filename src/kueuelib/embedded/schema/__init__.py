"""What the server knows about the shape of objects: pruning, defaults, validation, list kinds."""
