"""A cluster whose manager was killed, for tests that break it, and objects that are in it."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
from rest import KUEUE, Obj, Rest
from warm import kueuelib

from kueuelib.api.meta import format_time
from kueuelib.app.configuration_reading import load_configuration
from kueuelib.app.decoding import Duration
from kueuelib.app.doctor.examining import DoctorReport, examine
from kueuelib.app.doctor.reading import read
from kueuelib.runtime.connection import connect
from kueuelib.testing.processes import LocalCluster

DOMAIN = "kueue.x-k8s.io"
ELASTIC = {f"{DOMAIN}/elastic-job": "true"}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{HOOKS}/mutatingwebhookconfigurations"
OUR_MUTATING = f"{MUTATING}/kueue-mutating-webhook-configuration"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ROLES = BINDINGS.replace("bindings", "s")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
API = f"v1beta2.visibility.{DOMAIN}"
VERSIONS = ("v1beta1", "v1beta2")
LEASE = "c1f6bfd2.kueue.x-k8s.io"
FOREVER = 1_000_000
"""Seconds for which a Lease lasts that nobody renews."""
OWN_LEASE = f"{LEASES.format('kueue-system')}/{LEASE}"
SECRET = "/api/v1/namespaces/kueue-system/secrets/kueue-webhook-server-cert"
ACTIVE = {"type": "Active", "status": "True", "reason": "Ready", "message": "by hand"}
SINCE = {"lastTransitionTime": "2024-01-01T00:00:00Z"}
LATER = 120.0
"""Seconds after which nothing is too young to be reported."""
Found = set[tuple[str, str]]


def doctor(kubeconfig: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return kueuelib("doctor", *args, "--kubeconfig", kubeconfig)


class Ward:
    """A cluster whose manager was killed, so that nothing mends what a test breaks."""

    def __init__(self, cluster: LocalCluster, rest: Rest) -> None:
        self.rest, self._kubeconfig = rest, cluster.kubeconfig
        configuration = load_configuration(cluster.processes.folder / "config.yaml")
        election = configuration.leader_election
        election = attrs.evolve(election, leader_elect=True, lease_duration=Duration(FOREVER))
        self.configuration = attrs.evolve(configuration, leader_election=election)

    def report(self) -> DoctorReport:
        async def examined() -> DoctorReport:
            async with await connect(self._kubeconfig) as client:
                return examine(await read(client, self.configuration, now=time.time() + LATER))

        return asyncio.run(examined())

    def found(self) -> Found:
        return {(name, str(one.subject)) for name, one in self.report().findings}

    @contextmanager
    def changed(self, path: str, body: Obj) -> Iterator[None]:
        """An object with other values; put back as it was, as far as the change went."""
        before = self.rest.get(path)
        self.rest.merge(path, body)
        try:
            yield
        finally:
            self.rest.merge(path, _before(before, body))

    @contextmanager
    def without(self, path: str) -> Iterator[None]:
        """A cluster without an object, which is created again."""
        before = self.rest.get(path)
        self.rest.delete(path)
        meta = before["metadata"]
        kept = {key: meta[key] for key in ("name", "namespace", "labels") if key in meta}
        before.pop("status", None)
        try:
            yield
        finally:
            self.rest.create(path.rpartition("/")[0], {**before, "metadata": kept})

    @contextmanager
    def with_one(self, path: str, obj: Obj) -> Iterator[str]:
        """A cluster with one more object."""
        self.rest.create(path, obj)
        where = f"{path}/{obj['metadata']['name']}"
        try:
            yield where
        finally:
            self._remove(where)

    def _remove(self, path: str) -> None:
        """Removes an object, whatever finalizers it has, deleted before or not."""
        for call in (
            lambda: self.rest.delete(path),
            lambda: self.rest.merge(path, {"metadata": {"finalizers": None}}),
        ):
            try:
                call()
            except httpx.HTTPStatusError as error:
                if error.response.status_code != 404:
                    raise

    @contextmanager
    def cluster_queue(self, name: str, **spec: Any) -> Iterator[None]:
        """One more ClusterQueue, with the status that a manager would give it."""
        obj = {**typed("ClusterQueue", name), "spec": {"namespaceSelector": {}, **spec}}
        with self.with_one(f"{KUEUE}/clusterqueues", obj) as path:
            self.rest.merge(f"{path}/status", {"status": {"conditions": [{**ACTIVE, **SINCE}]}})
            yield


def _before(before: Any, body: Any) -> Any:
    """The merge patch that undoes another one."""
    if not isinstance(body, dict) or not isinstance(before, dict):
        return before
    return {key: _before(before.get(key), value) for key, value in body.items()}


def typed(kind: str, name: str) -> Obj:
    return {"apiVersion": f"{DOMAIN}/v1beta2", "kind": kind, "metadata": {"name": name}}


def cohort(name: str, parent: str) -> Obj:
    return {**typed("Cohort", name), "spec": {"parentName": parent}}


def workload(name: str, queue: str, count: int = 1, notes: Obj | None = None) -> Obj:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pods = {"name": "main", "count": count, "template": {"spec": {"containers": [container]}}}
    obj = {**typed("Workload", name), "spec": {"queueName": queue, "podSets": [pods]}}
    obj["metadata"]["annotations"] = notes or {}
    return obj


def lease(namespace: str, holder: str) -> Obj:
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": FOREVER,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": micro_time(),
    }
    meta = {"name": LEASE, "namespace": namespace}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": meta,
        "spec": spec,
    }


def groups(flavor: str, cpu: str) -> Obj:
    quota = [{"name": "cpu", "nominalQuota": cpu}]
    return {
        "resourceGroups": [
            {"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": quota}]}
        ]
    }


def micro_time() -> str:
    return f"{format_time(time.time())[:-1]}.000000Z"


def of_crd(kind: str) -> str:
    return f"CustomResourceDefinition {kind}.{DOMAIN}"
