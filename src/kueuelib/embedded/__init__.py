"""The API server in pure Python, and the simulated cluster.

These names are stable, see docs/stability.md; the modules that they come from are internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kueuelib.embedded.cluster.clock import ManualClock as ManualClock
    from kueuelib.embedded.server import ApiServer as ApiServer
else:
    from kueuelib.lazy_exports import lazily

    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {"kueuelib.embedded.cluster.clock": "ManualClock", "kueuelib.embedded.server": "ApiServer"},
    )
