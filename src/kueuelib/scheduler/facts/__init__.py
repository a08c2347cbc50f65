"""Which fact changes what: cache and queues take over the events that the engine receives."""
