"""Starts the pods of placed Workloads in their domains (KEP-2724).

`kueuelib.scheduler.topology.ungater` decides; here the gates are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import anyio

from kueuelib.api import kinds
from kueuelib.api.codec import decode
from kueuelib.api.conversion import convert
from kueuelib.api.kinds import PODS, V1BETA2
from kueuelib.api.meta import Obj, ObjectKey, annotations_of, key_of, labels_of, parse_time
from kueuelib.api.names import (
    ADMITTED,
    INDEX_OFFSET,
    POD_SET_LABEL,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from kueuelib.api.pods import FAILED, SUCCEEDED
from kueuelib.api.workload import PodSetAssignment, TopologyRequest
from kueuelib.errors import Conflict, Invalid, NotFound
from kueuelib.jobs.pods.reading import gates_of
from kueuelib.machinery.store import Delta, strip
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Controller, Result
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.wanted import WantedInformer
from kueuelib.scheduler.topology.ungater import PlacedPodSet, PodOfSet, ungated
from kueuelib.workload import states

BY_WORKLOAD: Final = "workload"
"""The index of pods by the key of their Workload."""
LIVING: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of pods that have not ended."""
AT_A_TIME: Final = 16
"""How many pods of a Workload are written at a time."""
BATCH: Final = 0.2
"""Seconds within which several changes of pods lead to one look at their Workload, at least."""
STALE_PAUSE: Final = 1.0
"""Seconds until the next look at a Workload one of whose pods had changed."""
_KEPT: Final = (WORKLOAD_ANNOTATION, INDEX_OFFSET)


def identity(obj: Obj) -> Obj:
    """What is stored of the metadata of any object."""
    names = ("name", "namespace", "uid", "resourceVersion")
    return {key: obj["metadata"][key] for key in names if key in obj["metadata"]}


def trimmed(obj: Obj) -> Obj:
    """What is stored of a pod with a place; changes its argument."""
    spec = obj.get("spec") or {}
    notes = annotations_of(obj)
    kept = {key: notes[key] for key in _KEPT if key in notes}
    leaving = obj["metadata"].get("deletionTimestamp")
    obj["metadata"] = identity(obj) | {"labels": labels_of(obj), "annotations": kept}
    if leaving:
        obj["metadata"]["deletionTimestamp"] = leaving
    parts = ("schedulingGates", "nodeSelector", "nodeName")
    obj["spec"] = {key: spec[key] for key in parts if spec.get(key)}
    obj["status"] = {"phase": (obj.get("status") or {}).get("phase", "")}
    return strip(obj)


def workload_of(pod: Mapping[str, Any]) -> ObjectKey | None:
    """The Workload of a raw pod; None if it names none."""
    name = annotations_of(pod).get(WORKLOAD_ANNOTATION)
    return ObjectKey(pod["metadata"].get("namespace", ""), name) if name else None


def is_placed(wl: Mapping[str, Any]) -> bool:
    """Whether a raw Workload is admitted, and pods of it have domains."""
    admission = (wl.get("status") or {}).get("admission") or {}
    for assignment in admission.get("podSetAssignments") or ():
        if assignment.get("topologyAssignment"):
            return states.is_admitted(wl)
    return False


def placed_pod_sets(wl: Mapping[str, Any]) -> tuple[PlacedPodSet, ...]:
    """The pod sets of a raw Workload whose pods have domains."""
    wl = convert(dict(wl), V1BETA2)
    requests = {one["name"]: one.get("topologyRequest") or {} for one in wl["spec"]["podSets"]}
    counts = {one["name"]: one.get("count", 1) for one in wl["spec"]["podSets"]}
    placed = []
    for raw in wl["status"]["admission"].get("podSetAssignments") or ():
        one = decode(PodSetAssignment, raw)
        place = one.topology_assignment
        if place is not None and one.name in requests:
            count = counts[one.name] if one.count is None else one.count
            request = decode(TopologyRequest, requests[one.name])
            placed.append(PlacedPodSet(one.name, count, request, place.levels, place.domains))
    return tuple(placed)


def ungating(
    wl: Mapping[str, Any], pods: Iterable[Obj]
) -> tuple[tuple[Obj, Mapping[str, str]], ...]:
    """The raw pods that may start now, each with what is added to its node selector.

    Args:
        wl: the raw Workload, which is placed.
        pods: its raw pods.
    """
    by_name: dict[str, Obj] = {}
    by_set: dict[str, list[PodOfSet]] = {}
    for pod in pods:
        if (pod.get("status") or {}).get("phase") in (SUCCEEDED, FAILED):
            continue
        name, labels = pod["metadata"]["name"], labels_of(pod)
        by_name[name] = pod
        by_set.setdefault(labels.get(POD_SET_LABEL, ""), []).append(
            PodOfSet(
                name,
                labels,
                annotations_of(pod).get(INDEX_OFFSET, ""),
                TOPOLOGY_GATE in gates_of(pod),
                pod["spec"].get("nodeSelector") or {},
            )
        )
    selectors = ungated(placed_pod_sets(wl), by_set, states.unhealthy_nodes(wl))
    return tuple([(by_name[name], selector) for name, selector in selectors.items()])


class UngaterReconciler:
    """Removes the gates of the pods of one Workload.

    Answers are learned, so the next look at the Workload knows which gates are gone.

    Args:
        client: writes pods.
        workloads: the raw Workloads.
        pods: the raw pods of started pod sets, indexed by `BY_WORKLOAD`.
        cache: learns the answers.
        telemetry: where the times are reported.
        clock: for them.
    """

    def __init__(
        self,
        client: Client,
        workloads: Informer,
        pods: WantedInformer,
        cache: Cache,
        telemetry: Telemetry,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._workloads = workloads
        self._pods = pods
        self._cache = cache
        self._clock = clock
        self._stale: set[ObjectKey] = set()
        self._waited = telemetry.histogram(
            "kueue_pod_scheduling_gate_removal_seconds",
            "From the admission of its Workload until a pod lost its gate.",
            ("name", "cluster_queue", "is_group"),
        )

    async def reconcile(self, key: ObjectKey) -> Result:
        """Start the pods that have got a domain.

        Raises:
            ExceptionGroup: a pod could not be written.
        """
        wl = self._workloads.store.get(key)
        if wl is None or not is_placed(wl):
            return DONE
        pods = self._pods.store.by_index(BY_WORKLOAD, key)
        if not pods:
            return DONE  # those to come make it due again
        limit = anyio.CapacityLimiter(AT_A_TIME)
        async with anyio.create_task_group() as tasks:
            for pod, selector in ungating(wl, pods):
                tasks.start_soon(self._start, wl, pod, selector, limit)
        if key in self._stale:  # the watch brings what they are now
            self._stale.discard(key)
            return Result(requeue_after=STALE_PAUSE)
        return DONE

    async def _start(
        self, wl: Obj, pod: Obj, selector: Mapping[str, str], limit: anyio.CapacityLimiter
    ) -> None:
        async with limit:
            if not is_placed(self._workloads.store.get(key_of(wl)) or {}):
                return  # evicted while others were written
            gates = [
                gate for gate in pod["spec"]["schedulingGates"] if gate["name"] != TOPOLOGY_GATE
            ]
            body = {
                "metadata": {"uid": pod["metadata"]["uid"]},
                "spec": {"schedulingGates": gates or None, "nodeSelector": dict(selector)},
            }
            try:
                answer = await self._client.patch(PODS, key_of(pod), body, PatchType.MERGE)
            except NotFound:
                self._cache.learn_gone(pod)
            except (Conflict, Invalid):
                self._stale.add(key_of(wl))  # another pod of this name, or other gates
            else:
                self._cache.learn(answer)
                self._observe(wl, pod)

    def _observe(self, wl: Obj, pod: Obj) -> None:
        queue = wl["status"]["admission"]["clusterQueue"]
        since = states.condition(wl, ADMITTED).get("lastTransitionTime")
        group = str(f"{kinds.KUEUE}/pod-group-name" in labels_of(pod)).lower()
        seconds = max(0.0, self._clock.now() - parse_time(since)) if since else 0.0
        self._waited.labels(TOPOLOGY_GATE, queue, group).observe(seconds)


def pods_to_start(cache: Cache, flavors: Informer) -> WantedInformer:
    """The informer of started pods, which runs while a flavor has a topology.

    Args:
        cache: makes it.
        flavors: the ResourceFlavors.
    """
    informer = WantedInformer(
        cache,
        PODS,
        flavors.wait_synced,
        indexes={BY_WORKLOAD: lambda pod: filter(None, (workload_of(pod),))},
        label_selector=POD_SET_LABEL,
        field_selector=LIVING,
        transform=trimmed,
    )
    follow_topologies(flavors, informer)
    return informer


def topology_of(flavor: Mapping[str, Any]) -> str:
    """The Topology that a raw ResourceFlavor names; empty for none."""
    return (flavor.get("spec") or {}).get("topologyName") or ""


def follow_topologies(flavors: Informer, *informers: WantedInformer) -> None:
    """Let informers run while any ResourceFlavor names a Topology."""

    def look(_: Delta[Obj]) -> None:
        wanted = any(map(topology_of, flavors.store.items()))
        for informer in informers:
            informer.want(wanted)

    flavors.add_handler(look)


def ungater(
    reconciler: UngaterReconciler,
    workloads: Informer,
    pods: WantedInformer,
    *,
    clock: Clock = SYSTEM_CLOCK,
    telemetry: Telemetry | None = None,
) -> Controller:
    """The controller; add it to the elected parts of a manager.

    Args:
        reconciler: does the work.
        workloads: the raw Workloads.
        pods: see `pods_to_start`.
        clock: for pauses.
        telemetry: where the controller reports.
    """
    made = Controller("ungater", reconciler, clock=clock, telemetry=telemetry)
    made.for_(workloads, _may_start)
    follow(made, pods, BATCH, workloads_of)
    return made


def follow(
    controller: Controller,
    informer: WantedInformer,
    pause: float,
    keys: Callable[[Delta[Obj]], Iterable[ObjectKey]],
) -> None:
    """Let changes of nodes or pods lead to a look at their Workloads, several of them to one.

    Args:
        controller: of Workloads.
        informer: of the nodes or pods.
        pause: seconds until the look, at least.
        keys: the Workloads that a change is about.
    """

    def later(delta: Delta[Obj]) -> None:
        if controller.listening:
            controller.queue.add_later(keys(delta), pause)

    informer.add_handler(later)


def workloads_of(delta: Delta[Obj]) -> set[ObjectKey]:
    """The Workloads of a pod, before and after a change."""
    both = (workload_of(pod) for pod in (delta.old, delta.new) if pod is not None)
    return {key for key in both if key is not None}


def _may_start(delta: Delta[Obj]) -> bool:
    new = delta.new
    if new is None or "admission" not in (new.get("status") or ()):
        return False  # most changes
    return is_placed(new)
