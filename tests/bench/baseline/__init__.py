"""Upstream's performance benchmark, and flows of jobs, against any API server and any manager.

`python -m tests.bench.baseline --help`, from the root of the repository.
"""
