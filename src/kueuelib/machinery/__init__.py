"""Generic state machines without I/O, clock or randomness."""
