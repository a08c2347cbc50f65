"""What happens to an object between arrival and store: defaults, plug-ins, webhooks, rules."""
