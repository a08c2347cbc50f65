"""The reconciler of one kind of jobs: reads the caches, makes a plan, and executes it (KEP-369)."""

from __future__ import annotations

import traceback
from pathlib import Path

from kueuelib.api.meta import Obj, ObjectKey, controller_of
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.lookups.owners import Owners
from kueuelib.jobs.lookups.remembered import Referred
from kueuelib.jobs.lookups.stores import ABOVE_UID, ByName, JobStores
from kueuelib.jobs.reconcile.executor import Executor
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot, Vanished
from kueuelib.jobs.reconcile.matching import by_age, controlled_by
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.machinery.store import Store
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import SETTLED, Result


class JobReconciler:
    """Makes jobs of one kind wait, start, stop and end with their Workloads.

    Args:
        integration: the kind.
        stores: the caches.
        owners: finds the ancestor that is queued on behalf of a job.
        executor: executes the plan.
        settings: the configuration.
        clock: the time.
        referred: completes jobs with the objects that they refer to; None: there are none.

    Attributes:
        above: the owners that each job was last found to be below, by `ABOVE_UID`.
    """

    def __init__(
        self,
        integration: Integration,
        stores: JobStores,
        owners: Owners,
        executor: Executor,
        settings: JobSettings,
        clock: Clock = SYSTEM_CLOCK,
        referred: Referred | None = None,
    ) -> None:
        self._referred = referred
        self._integration = integration
        self._stores = stores
        self._owners = owners
        self._executor = executor
        self._settings = settings
        self._clock = clock
        self.above: Store[tuple[str, ...]] = Store({ABOVE_UID: tuple})
        self._vanished = Vanished()
        self._reported: dict[ObjectKey, tuple[str, int | None, str]] = {}
        self._flavors = ByName(stores.flavors)
        self._classes = PriorityClasses(ByName(stores.workload_classes), ByName(stores.pod_classes))

    async def reconcile(self, key: ObjectKey) -> Result:
        """Look at one job and act."""
        jobs = self._stores.jobs[self._integration.name]
        raw = jobs.get(key)
        if raw is not None:
            await self._owners.learn(raw, key.namespace)
            raw = jobs.get(key)
        if raw is not None and self._referred is not None:
            raw = await self._referred.complete(self._integration, raw)
        try:
            commands = plan(self.observe(key, raw))
        except Exception as error:
            self._report(key, raw, error)
            raise
        self._reported.pop(key, None)
        outcome = await self._executor.run(commands, raw)
        if commands and outcome.wait is None and self._is_settled(key):
            return SETTLED
        return outcome.result

    def _report(self, key: ObjectKey, raw: Obj | None, error: Exception) -> None:
        """Reports an error of the kind's own methods on the job, once while it is unchanged."""
        if raw is None:
            return
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{error!r} in {place.name}, {Path(place.filename).name}:{place.lineno}"
        failure = (raw["metadata"]["uid"], raw["metadata"].get("generation"), text)
        if self._reported.get(key) != failure:
            self._reported[key] = failure
            self._executor.warn(raw, f"Nothing can be queued: {text}")

    def _is_settled(self, key: ObjectKey) -> bool:
        """Whether nothing is left to do, as far as that is known without reading anything."""
        raw = self._stores.jobs[self._integration.name].get(key)
        if raw is not None and (
            self._integration.refers or self._owners.has_to_learn(raw, key.namespace)
        ):
            return False
        return not plan(self.observe(key, raw))

    def observe(self, key: ObjectKey, raw: Obj | None) -> JobSnapshot:
        """The situation of one job, from the caches.

        Args:
            key: its namespace and name.
            raw: the raw job; None when it is gone.
        """
        stores, integration = self._stores, self._integration
        by_name = stores.workloads_of_name(integration.resource, key)
        if raw is None:
            self._vanished.forget(key)
            self.above.remove(key)
            orphans = tuple(wl for wl in by_name if _is_controller(integration, key.name, wl))
            return JobSnapshot(None, self._clock.now(), self._settings, orphans=by_age(orphans))
        above = self._owners.above(raw, key.namespace)
        if above or key in self.above:
            self.above.put(key, above)
        job = integration.job_type(raw)
        prebuilt = job.prebuilt_workload
        workloads = stores.workloads_of(job.uid)
        monotonic = self._clock.monotonic()
        return JobSnapshot(
            job,
            self._clock.now(),
            self._settings,
            workloads=by_age(workloads),
            orphans=by_age(
                wl
                for wl in by_name
                if not controlled_by(wl, job.uid) and _is_controller(integration, key.name, wl)
            ),
            prebuilt=stores.workload(ObjectKey(key.namespace, prebuilt)) if prebuilt else None,
            ancestor=self._owners.ancestor_of(raw, key.namespace),
            namespace_labels=stores.namespace_labels(key.namespace),
            flavors=self._flavors,
            classes=self._classes,
            again=self._vanished.look(key, job.uid, monotonic, present=bool(workloads)),
        )


def _is_controller(integration: Integration, name: str, workload: Obj) -> bool:
    """Whether the controller of a Workload is of this kind and has this name."""
    ref = controller_of(workload)
    return ref is not None and ref["name"] == name and integration.is_owner(ref)
