"""Names failed nodes in the Workloads that use them, and ends pods that cannot start there.

`kueuelib.workload.node_failures` decides (KEP-2724); the scheduler then replaces the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kueuelib.api.codec import decode
from kueuelib.api.core import Toleration
from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj, ObjectKey, format_time, key_of, labels_of
from kueuelib.api.names import EVICTED
from kueuelib.api.pods import FAILED
from kueuelib.api.workload import HOST
from kueuelib.controllers.feed import stored_admission
from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.controllers.nodes import BY_HOST
from kueuelib.controllers.queue_metrics import counted
from kueuelib.controllers.ungater import BY_WORKLOAD, follow, topology_of, workloads_of
from kueuelib.errors import Conflict, Invalid, NotFound
from kueuelib.machinery.store import Delta
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Controller, Result
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.wanted import WantedInformer
from kueuelib.scheduler.settings import NodeFailureRules
from kueuelib.workload import states
from kueuelib.workload.node_failures import Hosts, Judgement, hosts_of, judge
from kueuelib.workload.phases import NODE_FAILURES, Phase
from kueuelib.workload.writer import StatusWriter

COMPONENT = "kueue-tas-node-controller"
PLACED_ON: Final = "workloads by host"
BATCH: Final = 0.1
"""Seconds within which several changes of nodes or pods lead to one look at a Workload."""
PAUSE: Final = 1.0
"""Seconds until the next look when something was not known yet, or a pod had changed."""
UNSCHEDULABLE: Final = {
    "type": "TerminatedByKueue",
    "status": "True",
    "reason": "UnschedulableOnAssignedNode",
    "message": "Pod terminated by Kueue NodeController due to node taint",
}
"""The condition of a pod that was ended."""
POD_TERMINATED: Final = "PodTerminatedByKueue"


def _assigned(wl: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """The hosts of each pod set of an admitted raw Workload; none of another."""
    admission = (wl.get("status") or {}).get("admission")
    for one in (admission or {}).get("podSetAssignments") or ():
        if "topologyAssignment" in one:  # most Workloads have none
            break
    else:
        return {}
    if states.phase_of(wl) is not Phase.ADMITTED:
        return {}
    return hosts_of(stored_admission(admission).pod_set_assignments)


def _hosts(wl: Mapping[str, Any]) -> Iterable[str]:
    assigned = _assigned(wl)
    return {host for hosts in assigned.values() for host in hosts} if assigned else ()


class NodeFailureReconciler:
    """Looks at the nodes of one Workload.

    Args:
        client: writes pods and Workloads.
        workloads: the raw Workloads.
        flavors: the raw ResourceFlavors.
        nodes: the raw nodes, indexed by `BY_HOST`.
        pods: the raw pods of started pod sets, indexed by `BY_WORKLOAD`.
        cache: learns the answers about pods.
        recorder: for events about Workloads and pods.
        metrics: counts evictions.
        rules: when a node has failed.
        clock: for transition times.
    """

    def __init__(
        self,
        client: Client,
        workloads: Informer,
        flavors: Informer,
        nodes: WantedInformer,
        pods: WantedInformer,
        cache: Cache,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        *,
        rules: NodeFailureRules,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._workloads = workloads
        self._flavors = flavors
        self._nodes = nodes
        self._pods = pods
        self._cache = cache
        self._recorder = recorder
        self._metrics = metrics
        self._rules = rules
        self._clock = clock
        self._writer = StatusWriter(client, workloads)
        workloads.add_index(PLACED_ON, _hosts)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring the failed nodes of a Workload in line with its nodes and pods.

        Raises:
            ApiError: a write was refused.
            TransportError: no answer.
        """
        wl = self._workloads.store.get(key)
        if wl is None or not _assigned(wl):
            return DONE
        if not (self._nodes.synced and self._pods.synced):  # nodes are not gone, just not known
            wanted = any(map(topology_of, self._flavors.store.items()))
            return Result(requeue_after=PAUSE) if wanted else DONE
        judgement = Judgement()

        def judged(newest: Obj) -> Obj | None:
            nonlocal judgement
            assigned = _assigned(newest)
            if not assigned:
                judgement = Judgement()
                return None
            judgement = self._judge(key, newest, assigned)
            return judgement.applied(newest, self._clock.now())

        try:
            stored = await self._writer.change(key, judged)
        except NotFound:
            return DONE
        except Conflict:
            return Result(requeue_after=PAUSE)
        if judgement.eviction and stored is not None:
            self._report(stored)
        again = [await self._end(pod) for pod in judgement.ending]
        if any(again):
            return Result(requeue_after=PAUSE)
        if judgement.look_again is None:
            return DONE
        return Result(requeue_after=max(judgement.look_again - self._clock.now(), 0.001))

    def _judge(self, key: ObjectKey, wl: Obj, assigned: Mapping[str, frozenset[str]]) -> Judgement:
        pods = self._pods.store.by_index(BY_WORKLOAD, key)
        tolerations = _tolerations_of(wl, self._flavors)
        hosts = Hosts(self._nodes_of, tolerations, pods)
        return judge(wl, assigned, hosts, self._clock.now(), self._rules)

    def _nodes_of(self, host: str) -> Sequence[Obj]:
        """The nodes with a host name; a node that lost that label is found by its own name."""
        nodes = self._nodes.store
        labelled = nodes.by_index(BY_HOST, host)
        named = None if labelled else nodes.get(ObjectKey("", host))
        return labelled if named is None else (named,)

    def _report(self, wl: Obj) -> None:
        first = states.is_first_eviction(wl)
        self._metrics.evicted(counted(wl), *states.eviction_cause(wl), first=first)
        message = states.condition(wl, EVICTED).get("message", "")
        self._recorder.event(
            wl, "Normal", f"EvictedDueTo{NODE_FAILURES}", message, component=COMPONENT
        )

    async def _end(self, pod: Obj) -> bool:
        """Let a pod fail that cannot start on its node; whether it has changed meanwhile."""
        meta = pod["metadata"]
        at = format_time(self._clock.now())
        body = {
            "metadata": {field: meta[field] for field in ("uid", "resourceVersion")},
            "status": {
                "phase": FAILED,
                "conditions": [{**UNSCHEDULABLE, "lastTransitionTime": at}],
            },
        }
        try:
            answer = await self._client.patch(
                PODS, key_of(pod), body, PatchType.STRATEGIC, subresource="status"
            )
        except NotFound:
            self._cache.learn_gone(pod)
            return False
        except (Conflict, Invalid):
            return True
        self._cache.learn(answer)
        message = UNSCHEDULABLE["message"]
        self._recorder.event(pod, "Normal", POD_TERMINATED, message, component=COMPONENT)
        return False


def _tolerations_of(wl: Mapping[str, Any], flavors: Informer) -> Callable[[str], list[Toleration]]:
    """What the pods of a pod set tolerate: by template, flavors and checks."""

    def tolerations(name: str) -> list[Toleration]:
        raws: list[Obj] = []
        for pod_set in wl["spec"]["podSets"]:
            if pod_set["name"] == name:
                raws += pod_set["template"].get("spec", {}).get("tolerations") or ()
        for one in stored_admission(wl["status"]["admission"]).pod_set_assignments:
            for flavor in {*one.flavors.values()} if one.name == name else ():
                spec = (flavors.store.get(ObjectKey("", flavor)) or {}).get("spec") or {}
                raws += spec.get("tolerations") or ()
        for check in states.check_states(wl):
            for update in check.get("podSetUpdates") or ():
                if update.get("name") == name:
                    raws += update.get("tolerations") or ()
        return [decode(Toleration, one) for one in raws]

    return tolerations


def node_failures(
    reconciler: NodeFailureReconciler,
    workloads: Informer,
    nodes: WantedInformer,
    pods: WantedInformer,
    *,
    clock: Clock = SYSTEM_CLOCK,
    telemetry: Telemetry | None = None,
) -> Controller:
    """The controller; add it to the elected parts of a manager.

    Args:
        reconciler: does the work.
        workloads: the raw Workloads, indexed by the reconciler.
        nodes: the raw nodes.
        pods: the raw pods of started pod sets.
        clock: for pauses.
        telemetry: where the controller reports.
    """
    made = Controller("node failures", reconciler, clock=clock, telemetry=telemetry)
    made.for_(workloads, _has_new_hosts)

    def on_node(delta: Delta[Obj]) -> set[ObjectKey]:
        if not _is_news(delta):
            return set()
        both = (node for node in (delta.old, delta.new) if node is not None)
        hosts = {delta.key.name, *map(_host_of, both)}
        return {key for host in hosts for key in workloads.store.keys_by_index(PLACED_ON, host)}

    follow(made, nodes, BATCH, on_node)
    follow(made, pods, BATCH, lambda delta: workloads_of(delta) if _may_matter(delta) else ())
    return made


def _host_of(node: Mapping[str, Any]) -> str:
    return labels_of(node).get(HOST, "")


def _has_new_hosts(delta: Delta[Obj]) -> bool:
    """Whether a Workload has got places; a replacement by the same node is not looked at again."""
    if delta.new is None:
        return False
    after = _assigned(delta.new)
    return bool(after) and (delta.old is None or _assigned(delta.old) != after)


def _is_news(delta: Delta[Obj]) -> bool:
    """Whether a node may have failed or returned: its amounts do not count."""
    old, new = delta.old, delta.new
    if old is None or new is None:
        return True
    return any(
        one(old) != one(new)
        for one in (
            _host_of,
            lambda node: (node["spec"].get("taints"), node["status"].get("conditions")),
        )
    )


def _may_matter(delta: Delta[Obj]) -> bool:
    """Whether a pod has left, leaves, or waits for a node without our gate."""
    pod = delta.new
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return True
    return not pod["spec"].get("nodeName") and HOST in (pod["spec"].get("nodeSelector") or ())
