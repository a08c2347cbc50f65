"""A hostile world: the real manager and API server, simulated under faults, from one seed."""
