"""A flow that takes a while, in a pod."""

import time

from prefect import flow


@flow
def work() -> None:
    """Longer than it takes to preempt it."""
    time.sleep(20)
