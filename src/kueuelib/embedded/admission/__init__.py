"""What happens to an object between its arrival and the store: defaults, plug-ins, webhooks, rules."""
