"""`kueuelib demo`: real processes, real HTTP, a simulated cluster.

`story` defines what is created and expected (pure), `screen` draws it, `play` starts the processes
and watches.
"""
