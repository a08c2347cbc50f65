"""What the built-in kinds default, refuse and keep: pure rules on raw objects."""
