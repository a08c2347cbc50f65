"""A job of Dagster that works for some seconds."""

from __future__ import annotations

import time

from dagster import job, op


@op
def wait() -> None:
    """Works."""
    time.sleep(15)


@job
def work() -> None:
    """What a run is of."""
    wait()
