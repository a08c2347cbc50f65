"""Applies the events that the engine receives to cache and queues."""
