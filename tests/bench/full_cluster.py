"""A cluster that is full when a manager starts: in the embedded server, or in a real one."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
from baseline.servers import Server
from samples import NOW, job, pod, workload

from kueuelib.api.crd import all_crds
from kueuelib.controllers.webhooks import by_url, with_conversion

Obj = dict[str, Any]
LONGEST = 1200.0
PLURALS = {
    "Pod": "pods",
    "Job": "jobs",
    "Workload": "kueue.x-k8s.io/workloads",
    "ResourceFlavor": "kueue.x-k8s.io/resourceflavors",
    "ClusterQueue": "kueue.x-k8s.io/clusterqueues",
    "LocalQueue": "kueue.x-k8s.io/localqueues",
}
"""Kinds, and where a real server stores them."""
BATCH = 100
"""Objects in one transaction; the store takes 128."""


def cluster(count: int) -> Iterator[Obj]:
    """Running Jobs of one pod set, their pods and Workloads, and the queue that they are in."""
    rows = [{"name": name, "nominalQuota": "1000000Gi"} for name in ("cpu", "memory")]
    flavor = {"name": "on-demand", "resources": rows}
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [flavor]}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    api = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    team = {"name": "team", "namespace": "default"}
    yield {**api, "kind": "ResourceFlavor", "metadata": {"name": "on-demand"}, "spec": {}}
    yield {**api, "kind": "ClusterQueue", "metadata": {"name": "team"}, "spec": spec}
    yield {**api, "kind": "LocalQueue", "metadata": team, "spec": {"clusterQueue": "team"}}
    for number in range(count):
        for make in (job, workload, pod):
            obj = make(number)
            obj["metadata"]["namespace"] = "default"
            obj["metadata"]["labels"].pop("kueue.x-k8s.io/managed", None)
            yield obj


@contextlib.contextmanager
def embedded(folder: Path, objects: Iterable[Obj]) -> Iterator[Server]:
    """Run an embedded API server that holds some objects and the definitions of their kinds."""
    state, kubeconfig = folder / "state.json", folder / "kubeconfig"
    crds = [with_conversion(crd, by_url("https://127.0.0.1:1")) for crd in all_crds()]
    state.write_bytes(orjson.dumps([*crds, *objects]))
    args = ["apiserver", "--kubeconfig", str(kubeconfig), "--load", str(state)]
    with (folder / "apiserver.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kueuelib", *args], stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + LONGEST
        while not kubeconfig.exists():
            assert process.poll() is None, (folder / "apiserver.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield Server(kubeconfig, folder)
    finally:
        process.terminate()
        process.wait(30)


def store(etcd: str, objects: Iterable[Obj]) -> None:
    """Write objects where a real API server, which hears of them by its watches, keeps them.

    Args:
        etcd: the address of the store.
        objects: as the server would store them, with their statuses.
    """
    with httpx.Client(base_url=etcd, trust_env=False, timeout=60) as client:
        batch: list[Obj] = []
        for obj in objects:
            batch.append({"requestPut": _entry(obj)})
            if len(batch) == BATCH:
                _commit(client, batch)
        _commit(client, batch)


def _commit(client: httpx.Client, batch: list[Obj]) -> None:
    if batch:
        answer = client.post("/v3/kv/txn", content=orjson.dumps({"success": batch}))
        answer.raise_for_status()
        batch.clear()


def _entry(obj: Obj) -> Obj:
    meta = {"uid": str(uuid.uuid4()), "creationTimestamp": NOW, "generation": 1, **obj["metadata"]}
    meta.pop("resourceVersion", None)  # it is the revision of the store
    path = ["/registry", PLURALS[obj["kind"]], meta.get("namespace"), meta["name"]]
    key = "/".join(filter(None, path))
    value = orjson.dumps({**obj, "metadata": meta})
    return {"key": _encoded(key.encode()), "value": _encoded(value)}


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
