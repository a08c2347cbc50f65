"""`submit`, `queue_state`, `watch` and `wait` without `await`, for scripts and notebooks.

    from kueuelib import sync

    handle = sync.submit(job, queue="team")
    end = sync.wait(handle, timeout=3600)

Each call runs its twin of `kueuelib` in an event loop of its own, in another thread, so that it
also works where a loop is running already, as in a notebook. Ctrl-C cancels the call. A client
belongs to one event loop, so these functions take a kubeconfig only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kueuelib.jobs.client.blocking import queue_state as queue_state
    from kueuelib.jobs.client.blocking import submit as submit
    from kueuelib.jobs.client.blocking import wait as wait
    from kueuelib.jobs.client.blocking import watch as watch
else:
    from kueuelib.lazy_exports import lazily

    __getattr__, __dir__, __all__ = lazily(
        __name__, {"kueuelib.jobs.client.blocking": "queue_state submit wait watch"}
    )
