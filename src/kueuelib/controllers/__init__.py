"""The controllers of the queueing objects: admission, Workloads, queues, flavors, checks.

`setup` adds the whole queue to a manager of your own, around an `Engine` of `kueuelib.scheduler`:

    webhooks = queue_webhooks(manager, client, "127.0.0.1:9443")
    setup(manager, cache, client, recorder, Engine(), webhooks=webhooks)

`kueuelib.jobs` and `kueuelib.checks` have a `setup` of the same form for job kinds and admission
checks. The rules for the life of a Workload are in `kueuelib.workload`. These names are stable, see
docs/stability.md; the modules that they come from are internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kueuelib.controllers.assembly import ControllerSettings as ControllerSettings
    from kueuelib.controllers.assembly import queue_webhooks as queue_webhooks
    from kueuelib.controllers.assembly import setup as setup
    from kueuelib.controllers.series_labels import MetricSettings as MetricSettings
    from kueuelib.runtime.webhook.server import Webhooks as Webhooks
else:
    from kueuelib.lazy_exports import lazily

    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "kueuelib.controllers.assembly": "ControllerSettings queue_webhooks setup",
            "kueuelib.controllers.series_labels": "MetricSettings",
            "kueuelib.runtime.webhook.server": "Webhooks",
        },
    )
