"""Which fact changes what: the events that the engine is told, taken over by cache and queues."""
