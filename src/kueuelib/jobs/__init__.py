"""GenericJob, its reconciler and registry, and the built-in integrations."""
