"""`kueuelib demo`: real processes, real HTTP, a simulated cluster.

`story` holds what is created and what must come true (pure), `screen` draws it, `play` starts the
processes and watches.
"""
