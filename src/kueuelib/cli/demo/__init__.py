"""`kueuelib demo`: real processes, real HTTP, a simulated cluster.

`story` holds what is created and what must come true (pure), `screen` draws it, `stage` starts and
stops the processes.
"""

from kueuelib.cli.demo.play import run

__all__ = ["run"]
