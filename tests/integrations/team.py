"""A namespace with a queue for one CPU, and what tests do in it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from kueuelib import JobHandle, State, sync
from kueuelib.api.meta import Obj, is_true
from kueuelib.errors import AlreadyExists
from kueuelib.runtime import connect

REASON = "Waiting for quota: "
KUEUE = "kueue.x-k8s.io/v1beta1"
FLAVORS: dict[str, Obj] = {
    "local": {},
    "processes": {
        "nodeLabels": {"kueuelib.dev/local": "true"},
        "nodeTaints": [{"key": "kueuelib.dev/local", "value": "true", "effect": "NoSchedule"}],
        "tolerations": [{"key": "kueuelib.dev/local", "operator": "Exists"}],
    },
}
_NUMBERS = itertools.count(1)


class Team:
    """A namespace whose LocalQueue `team` has quota for one CPU.

    Args:
        kubeconfig: of the cluster.
        flavor: `local` for simulated pods, `processes` for real ones.
        cpu: the quota.
    """

    def __init__(self, kubeconfig: Path, flavor: str = "local", cpu: str = "1") -> None:
        self.kubeconfig = str(kubeconfig)
        self.namespace = f"team-{next(_NUMBERS)}"
        quota = [
            {"name": name, "nominalQuota": amount}
            for name, amount in (("cpu", cpu), ("memory", "4Gi"))
        ]
        group = {
            "coveredResources": ["cpu", "memory"],
            "flavors": [{"name": flavor, "resources": quota}],
        }
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        self.create(kueue("ResourceFlavor", flavor, spec=FLAVORS[flavor]), once=True)
        for name, value in (("low", 1), ("high", 100)):
            self.create(kueue("WorkloadPriorityClass", name, value=value), once=True)
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [group],
            "preemption": {"withinClusterQueue": "LowerPriority"},
        }
        self.create(kueue("ClusterQueue", self.namespace, spec=spec))
        self.create(
            kueue("LocalQueue", "team", self.namespace, spec={"clusterQueue": self.namespace})
        )

    def claim(self) -> None:
        """Makes the claim `shared`."""
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        meta = {"name": "shared", "namespace": self.namespace}
        kind = "PersistentVolumeClaim"
        self.create({"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": spec})

    def create(self, obj: Obj, *, once: bool = False) -> None:
        """Creates an object."""
        asyncio.run(_create(self.kubeconfig, obj, once=once))

    def jobs(self) -> list[str]:
        """The names of its Jobs."""
        return asyncio.run(_jobs(self.kubeconfig, self.namespace))

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Another pod, of a higher priority, has the CPU meanwhile."""
        resources = {"requests": {"cpu": "1"}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "other-", "namespace": self.namespace},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "c",
                        "image": "local",
                        "command": ["sleep", "600"],
                        "resources": resources,
                    }
                ],
            },
        }
        where = self.kubeconfig
        other = sync.submit(pod, queue="team", priority_class="high", kubeconfig=where)
        sync.wait(other, State.ADMITTED, timeout=60, kubeconfig=where)
        try:
            yield
        finally:
            asyncio.run(_delete(where, other))

    def wait_for_admission(self) -> None:
        """Until a Workload of low priority is admitted."""
        asyncio.run(_admitted(self.kubeconfig, self.namespace))


@attrs.frozen
class Looks:
    """What a user sees of a job that waits.

    Attributes:
        texts: the latest text at each second, from the creation of the job's Workload.
        package: what the user uses.
    """

    package: str
    texts: list[str]

    @classmethod
    def at(cls, team: Team, package: str, shown: Callable[[], str], seconds: int) -> Looks:
        """Looks for some seconds.

        Args:
            team: where the only job waits.
            package: what its user uses.
            shown: the latest text that its user sees.
            seconds: how long.
        """
        asyncio.run(_reserves(team.kubeconfig, team.namespace))
        begun, texts = time.monotonic(), list[str]()
        while len(texts) < seconds:
            texts.append(shown())
            time.sleep(max(0.0, begun + len(texts) - time.monotonic()))
        looks = cls(package, texts)
        print(f"{package}: {seconds} s, no reason for {looks.first} s, later for {looks.lapses} s")
        return looks

    @property
    def first(self) -> int:
        """The seconds without a reason at first."""
        return next(n for n, text in enumerate([*self.texts, REASON]) if REASON in text)

    @property
    def lapses(self) -> int:
        """The later seconds without a reason."""
        return sum(REASON not in text for text in self.texts[self.first :])


def kueue(kind: str, name: str, namespace: str = "", **fields: Any) -> Obj:
    """An object of Kueue."""
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": meta, **fields}


async def _delete(kubeconfig: str, handle: JobHandle) -> None:
    async with await connect(kubeconfig) as client:
        await client.delete(handle.resource, handle.key)


async def _jobs(kubeconfig: str, namespace: str) -> list[str]:
    async with await connect(kubeconfig) as client:
        resource = await client.find_resource("batch/v1", "Job")
        assert resource is not None
        return [each["metadata"]["name"] for each in (await client.list(resource, namespace)).items]


async def _create(kubeconfig: str, obj: Obj, *, once: bool) -> None:
    async with await connect(kubeconfig) as client:
        resource = await client.find_resource(obj["apiVersion"], obj["kind"])
        assert resource is not None
        try:
            await client.create(resource, obj)
        except AlreadyExists:
            if not once:
                raise


async def _reserves(kubeconfig: str, namespace: str) -> None:
    """Until a Workload waits."""
    async with await connect(kubeconfig) as client, asyncio.timeout(300):
        resource = await client.find_resource(KUEUE, "Workload")
        assert resource is not None
        while all(
            is_true(workload, "QuotaReserved")
            for workload in (await client.list(resource, namespace)).items
        ):
            await asyncio.sleep(0.1)


async def _admitted(kubeconfig: str, namespace: str) -> None:
    async with await connect(kubeconfig) as client, asyncio.timeout(120):
        resource = await client.find_resource(KUEUE, "Workload")
        assert resource is not None
        while True:
            for workload in (await client.list(resource, namespace)).items:
                low = workload["spec"].get("priorityClassName") == "low"
                if low and is_true(workload, "Admitted"):
                    return
            await asyncio.sleep(0.2)
