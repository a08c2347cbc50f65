"""Somebody breaks what the API server trusts the manager by; within seconds it is as before."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import httpx
import pytest
from place import shared_cluster
from real_plane import lacking, real_cluster
from rest import KUEUE, Obj, Rest, eventually

from kueuelib.runtime.certificates import host_names, renewed
from kueuelib.runtime.webhook.trust import with_bundle
from kueuelib.testing.processes import LocalCluster

HOOKS = "/apis/admissionregistration.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SECRET = "/api/v1/namespaces/kueue-system/secrets/kueue-webhook-server-cert"
BROKEN = (
    f"{HOOKS}/mutatingwebhookconfigurations/kueue-mutating-webhook-configuration",
    f"{HOOKS}/validatingwebhookconfigurations/kueue-validating-webhook-configuration",
    f"{CRDS}/clusterqueues.kueue.x-k8s.io",
)
PROMPT = 30.0
"""Seconds; a look a minute would take longer than this in every second run."""
WATCHED = 20
"""Creations that succeed one after the other once something was repaired."""


@contextmanager
def real(folder: Path) -> Iterator[tuple[LocalCluster, Rest]]:
    """A manager outside of a real control plane."""
    with real_cluster(folder) as cluster:
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        with Rest(cluster.kubeconfig) as rest:
            yield cluster, rest


class Creations:
    """Somebody who creates queueing objects of the old version all the time, as a dry run."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.refusals: list[str] = []
        self.longest = 0.0
        """Seconds between two successes, at most."""
        self._since = 0
        """Successes since the last refusal."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def succeed(self) -> None:
        """Waits until one after the other succeeds."""
        self._since = 0
        eventually(lambda: self._since >= WATCHED)

    def _run(self) -> None:
        path = KUEUE.replace("v1beta2", "v1beta1") + "/clusterqueues?dryRun=All"
        head = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue"}
        obj = {**head, "metadata": {"name": "tried"}, "spec": {"namespaceSelector": {}}}
        last = time.monotonic()
        with Rest(self._kubeconfig) as rest:
            while not self._over.is_set():
                try:
                    rest.create(path, obj)
                except httpx.HTTPStatusError as error:
                    self.refusals.append(str(error))
                    self._since = 0
                else:
                    now = time.monotonic()
                    self.longest, last = max(self.longest, now - last), now
                    self._since += 1
                time.sleep(0.05)
        self.longest = max(self.longest, time.monotonic() - last)


REAL = pytest.param(
    real, marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]
)


def entries(rest: Rest, path: str, kind: str) -> dict[str, Obj]:
    """Those of a kind, by name."""
    hooks = rest.get(path)["webhooks"]
    return {one["name"]: one for one in hooks if f"{kind}.kb.io" in one["name"]}


@pytest.mark.parametrize("made", [shared_cluster, REAL])
@pytest.mark.parametrize("kind", ["job", "queue", "workload"])
def test_entries_are_put_in_order_within_seconds(made: Callable, tmp_path: Path, kind: str) -> None:
    with made(tmp_path) as (_, rest):
        for path in BROKEN[:2]:
            before = entries(rest, path, kind)
            assert before
            for change in ("removed", "weakened"):
                kept = []
                for one in rest.get(path)["webhooks"]:
                    if one["name"] not in before:
                        kept.append(one)
                    elif change == "weakened":
                        kept.append({**one, "failurePolicy": "Ignore", "objectSelector": {}})
                rest.merge(path, {"webhooks": kept})
                began = time.monotonic()
                assert eventually(
                    lambda path=path, before=before: entries(rest, path, kind) == before
                )
                seconds = time.monotonic() - began
                print(f"{path.rpartition('/')[2]}: {change} entries are back in {seconds:.2f} s")
                assert seconds < PROMPT


@pytest.mark.parametrize("made", [shared_cluster, REAL])
def test_creations_succeed_again_within_seconds(made: Callable, tmp_path: Path) -> None:
    other = renewed(None, host_names(["127.0.0.1"]), time.time()).ca_cert
    with made(tmp_path) as (cluster, rest):

        def foreign(path: str) -> bool:
            obj = rest.get(path)
            return with_bundle(obj, other) is obj

        for path in BROKEN:
            with Creations(cluster.kubeconfig) as creations:
                began = time.monotonic()
                wrong = with_bundle({**rest.get(path), "metadata": {}}, other)
                broken = rest.merge(path, wrong)
                assert with_bundle(broken, other) is broken
                eventually(lambda path=path: not foreign(path))
                repaired = time.monotonic() - began
                creations.succeed()
            print(
                f"{path.rpartition('/')[2]}: repaired after {repaired:.2f} s, "
                f"no creation for {creations.longest:.2f} s"
            )
            assert repaired < PROMPT
            assert creations.longest < PROMPT, creations.refusals[-1:]
        before = rest.get(SECRET)["data"]
        with Creations(cluster.kubeconfig) as creations:
            rest.delete(SECRET)
            eventually(lambda: rest.get(SECRET)["data"]["ca.key"] != before["ca.key"])
            new = base64.b64decode(rest.get(SECRET)["data"]["ca.crt"])
            for path in BROKEN:
                eventually(lambda path=path: with_bundle(obj := rest.get(path), new) is obj)
            creations.succeed()
        print(f"Secret: no creation for {creations.longest:.2f} s")
        assert creations.longest < PROMPT, creations.refusals[-1:]
