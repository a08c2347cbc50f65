"""What waits: what it asks for, where it is, and what wakes it."""
