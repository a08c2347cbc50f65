"""Async shells: transport, client, informers, controllers, manager, webhooks."""
