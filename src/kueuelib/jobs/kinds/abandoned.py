"""Releases Workloads whose kind of jobs is gone."""

from __future__ import annotations

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import ObjectKey, controller_of
from kueuelib.jobs.contract.commands import Delete
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.lookups.stores import JobStores
from kueuelib.jobs.reconcile.executor import Executor
from kueuelib.jobs.reconcile.steps import Commands, release
from kueuelib.runtime.controller import DONE, Result


class AbandonedWorkloads:
    """Deletes the Workloads of jobs whose kind no longer has objects, and frees their quota.

    The garbage collector cannot be relied on for that: it only handles owners of kinds that the API
    server knows.

    Args:
        integration: the kind.
        stores: hold the Workloads.
        executor: executes the plan.
    """

    def __init__(self, integration: Integration, stores: JobStores, executor: Executor) -> None:
        self._integration = integration
        self._stores = stores
        self._executor = executor

    async def reconcile(self, key: ObjectKey) -> Result:
        """Release the Workloads of the job that had this name."""
        planned: Commands = ()
        for workload in self._stores.workloads_of_name(self._integration.resource, key):
            ref = controller_of(workload)
            if ref is None or ref["name"] != key.name or not self._integration.is_owner(ref):
                continue
            if not workload["metadata"].get("deletionTimestamp"):
                planned += (Delete(WORKLOADS, workload),)
            planned += release(workload)
        if planned:
            await self._executor.run(planned)
        return DONE
