"""Upstream's performance benchmark, played against any API server and any manager.

`python -m tests.bench.baseline --help`, from the root of the repository.
"""
