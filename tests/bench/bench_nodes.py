"""What nodes and the pods on them cost a manager that places pods, and what starting pods costs."""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from typing import Any

from figures import percentile, show

from kueuelib.api.codec import decode
from kueuelib.api.kueue import ResourceFlavor, Topology
from kueuelib.api.meta import ObjectKey, key_of
from kueuelib.controllers.nodes import FOREIGN_PODS, NODES, trimmed_node, trimmed_pod
from kueuelib.controllers.ungater import trimmed, ungating
from kueuelib.machinery.store import Store
from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.settings import Settings

Obj = dict[str, Any]
NODE_COUNT, POD_COUNT, EVENTS = 5_000, 50_000, 200
HOST = "kubernetes.io/hostname"
ANNOTATION = "kueue.x-k8s.io/workload"


def fresh(obj: Obj) -> Obj:
    """An object as it comes from the wire."""
    copied: Obj = json.loads(json.dumps(obj))
    return copied


def node(index: int, *, ready: bool = True) -> Obj:
    labels = {HOST: f"n{index}", "rack": f"r{index // 25}", "block": f"b{index // 500}"}
    labels |= {f"example.com/label-{number}": "value" for number in range(20)}
    capacity = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "110"}
    status = {"status": "True" if ready else "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    names = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    images = [{"names": [f"example.com/image-{number}"], "sizeBytes": 1} for number in range(50)]
    return {
        "metadata": {"name": f"n{index}", "uid": f"n{index}", "labels": labels},
        "spec": {},
        "status": {
            "allocatable": capacity,
            "capacity": capacity,
            "conditions": [{"type": name, **status} for name in names],
            "images": images,
        },
    }


def pod(index: int) -> Obj:
    requests = {"cpu": f"{100 + 100 * (index % 20)}m", "memory": "1Gi"}
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    meta = {"name": f"pod-{index}", "namespace": f"team-{index % 50}", "uid": f"p{index}"}
    spec = {"nodeName": f"n{index % NODE_COUNT}", "containers": [container]}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}


def engine() -> Engine:
    """One with a flavor that has a topology."""
    made = Engine(Settings(places_pods=True))
    levels = [{"nodeLabel": label} for label in ("block", "rack", HOST)]
    topology = decode(Topology, {"metadata": {"name": "t"}, "spec": {"levels": levels}})
    made.observe(events.TopologySet(topology), 0.0)
    spec = {"nodeLabels": {"example.com/label-0": "value"}, "topologyName": "t"}
    flavor = decode(ResourceFlavor, {"metadata": {"name": "f"}, "spec": spec})
    made.observe(events.FlavorSet(flavor), 0.0)
    return made


def held(count: int, before: int) -> str:
    gc.collect()
    return f"{(tracemalloc.get_traced_memory()[0] - before) / count / 1024:.2f} KiB"


def test_memory_and_time_per_node_and_pod() -> None:
    tracemalloc.start()
    made, stores = engine(), (Store[Obj](), Store[Obj]())
    rows = []
    for store, source, count, objects, trim in (
        (stores[0], NODES, NODE_COUNT, node, trimmed_node),
        (stores[1], FOREIGN_PODS, POD_COUNT, pod, trimmed_pod),
    ):
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        items = []
        for index in range(count):
            obj = trim(fresh(objects(index)))
            items.append((key_of(obj), obj))
        list(store.replace(items))
        del items
        rows.append((f"stored, each of {count:,}", held(count, before)))
        before = tracemalloc.get_traced_memory()[0]
        for obj in store.items():
            made.observe(source.present(obj), 0.0)
        rows.append(("in the engine, each", held(count, before)))
    tracemalloc.stop()
    show(f"memory of {NODE_COUNT:,} nodes and {POD_COUNT:,} pods", rows)

    def timed(changes: list[tuple[Any, Obj]], source: Any) -> str:
        made.cache.nodes.freeze()
        spent = []
        for trim, obj in changes:
            start = time.thread_time()
            made.observe(source.present(trim(obj)), 0.0)
            spent.append(1e6 * (time.thread_time() - start))
        return f"{sum(spent) / len(spent):.0f} µs, 99 % below {percentile(spent, 99):.0f} µs"

    fails = [(trimmed_node, fresh(node(index, ready=False))) for index in range(EVENTS)]
    moved = [{**pod(index), "spec": pod(index + 1)["spec"]} for index in range(EVENTS)]
    moves = [(trimmed_pod, fresh(obj)) for obj in moved]
    rows = [("a node fails", timed(fails, NODES)), ("a pod moves", timed(moves, FOREIGN_PODS))]
    gone = time.thread_time()
    for index in range(EVENTS):
        made.observe(FOREIGN_PODS.gone(ObjectKey(f"team-{index % 50}", f"pod-{index}")), 0.0)
    rows.append(("a pod ends", f"{1e6 * (time.thread_time() - gone) / EVENTS:.0f} µs"))
    show("time per event, with reading what counts", rows)


def test_starting_the_pods_of_one_job() -> None:
    count = 5_000
    slices = [
        {
            "domainCount": count,
            "valuesPerLevel": [
                {"individual": {"prefix": "n", "roots": [str(number) for number in range(count)]}}
            ],
            "podCounts": {"universal": 1},
        }
    ]
    place = {"levels": [HOST], "slices": slices}
    assignment = {"name": "main", "count": count, "topologyAssignment": place}
    wl = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "wl", "namespace": "default"},
        "spec": {
            "podSets": [{"name": "main", "count": count, "topologyRequest": {"podIndexLabel": "i"}}]
        },
        "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]}},
    }
    pods = []
    for index in range(count):
        labels = {"kueue.x-k8s.io/podset": "main", "i": str(index)}
        meta = {"name": f"p{index}", "namespace": "default", "labels": labels}
        meta["annotations"] = {ANNOTATION: "wl"}
        gates = [{"name": "kueue.x-k8s.io/topology"}]
        pods.append(trimmed({"metadata": meta, "spec": {"schedulingGates": gates}}))
    start = time.thread_time()
    assert len(ungating(wl, pods)) == count
    spent = f"{1e3 * (time.thread_time() - start):.0f} ms"
    show("starting pods", [(f"where {count:,} pods of one Job go", spent)])
