"""`kueuelib demo`: real processes, real HTTP, a simulated cluster.

`story` defines what is created and expected (pure), `play` starts the processes, watches, and draws
what it sees. `racks` is a second act about places on nodes, `real` the one whose pods really run.
"""
