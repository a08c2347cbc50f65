"""Tools for tests of operators, jobs, checks and policies.

These names are stable, see docs/stability.md; the modules that they come from are internal. The
pytest plug-in `kueuelib.testing.plugin` is active as soon as kueuelib is installed: it has the
fixtures `api_server`, `kube_client`, `kubeconfig`, `local_node` and `storm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kueuelib.runtime.endpoint import Endpoint as Endpoint
    from kueuelib.testing.background import BackgroundServer as BackgroundServer
    from kueuelib.testing.builders import make_cluster_queue as make_cluster_queue
    from kueuelib.testing.builders import make_flavor as make_flavor
    from kueuelib.testing.builders import make_local_queue as make_local_queue
    from kueuelib.testing.builders import make_workload as make_workload
    from kueuelib.testing.hostile import Act as Act
    from kueuelib.testing.hostile import ClusterState as ClusterState
    from kueuelib.testing.hostile import Commit as Commit
    from kueuelib.testing.hostile import Draws as Draws
    from kueuelib.testing.hostile import Storm as Storm
    from kueuelib.testing.hostile import StormFailed as StormFailed
    from kueuelib.testing.hostile import Trial as Trial
    from kueuelib.testing.hostile import create as create
    from kueuelib.testing.hostile import delete as delete
    from kueuelib.testing.hostile import patch as patch
    from kueuelib.testing.hostile import patch_status as patch_status
    from kueuelib.testing.hostile import trial as trial
    from kueuelib.testing.job_adapter import JobAdapter as JobAdapter
    from kueuelib.testing.job_conformance import JobConformance as JobConformance
    from kueuelib.testing.operators import eventually as eventually
    from kueuelib.testing.operators import queueing as queueing
    from kueuelib.testing.operators import running as running
    from kueuelib.testing.operators import settled as settled
    from kueuelib.testing.preemption_conformance import (
        check_preemption_policy as check_preemption_policy,
    )
    from kueuelib.testing.processes import free_port as free_port
    from kueuelib.testing.storm.seed_plan import SeedReport as SeedReport
else:
    from kueuelib.lazy_exports import lazily

    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "kueuelib.runtime.endpoint": "Endpoint",
            "kueuelib.testing.background": "BackgroundServer",
            "kueuelib.testing.builders": "make_cluster_queue make_flavor "
            "make_local_queue make_workload",
            "kueuelib.testing.hostile": "Act ClusterState Commit Draws Storm StormFailed "
            "Trial create delete patch patch_status trial",
            "kueuelib.testing.job_adapter": "JobAdapter",
            "kueuelib.testing.job_conformance": "JobConformance",
            "kueuelib.testing.operators": "eventually queueing running settled",
            "kueuelib.testing.preemption_conformance": "check_preemption_policy",
            "kueuelib.testing.processes": "free_port",
            "kueuelib.testing.storm.seed_plan": "SeedReport",
        },
    )
