"""A process with checks that exit and hang: it goes on, and it ends when it is told to."""

from __future__ import annotations

from typing import Any

from rest import JOBS, KUEUE, Rest, eventually, job

from kueuelib.testing.processes import LocalCluster

MODULE = """
import asyncio
import sys
import time

from kueuelib.checks import check


@check("example.com/exits")
async def exits(workload, parameters):
    sys.exit("bye")


@check("example.com/hangs", timeout=1)
def hangs(workload, parameters):
    time.sleep(3600)


@check("example.com/ignores", timeout=1)
async def ignores(workload, parameters):
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            pass
"""
TOLD = {
    "exits": "SystemExit: bye",
    "hangs": "took longer than 1 s",
    "ignores": "took longer than 1 s",
}


def create(rest: Rest, plural: str, kind: str, name: str, spec: Any) -> None:
    meta = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}}
    rest.create(f"{KUEUE}/{plural}", {**meta, "spec": spec})


def test_checks_that_exit_and_hang_neither_end_their_process_nor_keep_it_alive(
    cluster: LocalCluster, rest: Rest
) -> None:
    module = cluster.processes.folder / "misbehaving.py"
    module.write_text(MODULE)
    process = cluster.processes.start(
        "check", "run", str(module), "--kubeconfig", str(cluster.kubeconfig)
    )
    create(rest, "resourceflavors", "ResourceFlavor", "default", {})
    for name in TOLD:
        spec = {"controllerName": f"example.com/{name}"}
        create(rest, "admissionchecks", "AdmissionCheck", name, spec)
        quota = [{"name": "cpu", "nominalQuota": 10}]
        group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": quota}]}
        strategy = {"admissionChecks": [{"name": name}]}
        queue = {
            "namespaceSelector": {},
            "resourceGroups": [group],
            "admissionChecksStrategy": strategy,
        }
        create(rest, "clusterqueues", "ClusterQueue", name, queue)
        local = {"clusterQueue": name}
        create(rest, "namespaces/default/localqueues", "LocalQueue", name, local)
        obj = job(name, seconds=600)
        obj["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = name
        rest.create(JOBS, obj)

    def failed() -> bool:
        events = rest.items("/api/v1/namespaces/default/events")
        found = [one["message"] for one in events if one["reason"] == "AdmissionCheckFailed"]
        for name, text in TOLD.items():
            assert any(f"Check {name} failed: {text}" in message for message in found), found
        return True

    eventually(failed)
    assert process.poll() is None
    process.terminate()
    assert process.wait(60) == 0
