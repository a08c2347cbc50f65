"""Kubernetes controllers in Python, and a complete job-queueing system on top.

The names below are imported when they are used first: `import kueuelib` alone costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kueuelib.jobs.client.following import JobGone as JobGone
    from kueuelib.jobs.client.following import JobHandle as JobHandle
    from kueuelib.jobs.client.following import queue_state as queue_state
    from kueuelib.jobs.client.following import submit as submit
    from kueuelib.jobs.client.following import wait as wait
    from kueuelib.jobs.client.following import watch as watch
    from kueuelib.jobs.client.progress import EvictionRecord as EvictionRecord
    from kueuelib.jobs.client.progress import Progress as Progress
    from kueuelib.jobs.client.progress import State as State
    from kueuelib.jobs.client.progress import Why as Why
else:
    from kueuelib.lazy_exports import lazily

    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "kueuelib.jobs.client.following": "JobGone JobHandle queue_state submit wait watch",
            "kueuelib.jobs.client.progress": "EvictionRecord Progress State Why",
        },
    )
