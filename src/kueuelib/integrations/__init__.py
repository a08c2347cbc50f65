"""Adapters for programs that submit pods and Jobs, one module for each program.

To such a program, time in a queue looks like a failure: its timeouts start when it submits. With an
adapter, time in the queue does not count, the program's users see `Progress.text` where they
already look, and an eviction is not a failure if the program can submit again. Install the program
yourself; each module names the versions that it was tested with. To adapt another program, call
`leave_queue`: it passes on each reason, and returns when the job leaves its queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kueuelib.integrations.waiting import leave_queue as leave_queue
    from kueuelib.integrations.waiting import leave_queue_blocking as leave_queue_blocking
else:
    from kueuelib.lazy_exports import lazily

    __getattr__, __dir__, __all__ = lazily(
        __name__, {"kueuelib.integrations.waiting": "leave_queue leave_queue_blocking"}
    )
