"""GenericJob, its reconciler and registry, and the built-in integrations.

Start reading at `generic_job` (what a kind of jobs has to tell), then `plan` (what is done about a
job); `setup` wires both to the API server.
"""
