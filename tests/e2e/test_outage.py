"""The manager dies and its webhooks do not answer: others notice nothing, ours are queued later."""

from __future__ import annotations

import copy
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from place import GATES, QUEUE, Place, gates, phase, pod_spec, shared_cluster
from real_plane import lacking, real_cluster
from rest import Obj, Rest, eventually, is_true

from kueuelib.controllers.webhooks import TIMEOUT_SECONDS
from kueuelib.testing.processes import LocalCluster

SECONDS = float(os.environ.get("OUTAGE_SECONDS", "12"))
"""How long nobody answers: longer than the API server waits for a webhook."""
PODS, JOBS = (200, 50) if "OUTAGE_SECONDS" in os.environ else (24, 8)
PAUSE = 5.0
"""Seconds after which a controller tries again what was refused."""
WAIT = 180.0


@contextmanager
def refusing(port: int) -> Iterator[None]:
    """Nobody listens."""
    del port
    yield


@contextmanager
def silent(port: int) -> Iterator[None]:
    """Connections are taken, and nothing is ever said."""
    with socket.create_server(("127.0.0.1", port), backlog=1000):
        yield


class Creations:
    """What is created during an outage, each object by a client of its own."""

    def __init__(self, place: Place, kubeconfig: Path) -> None:
        self._place = place
        self._kubeconfig = kubeconfig
        self._over = threading.Event()
        self.refusals: dict[str, list[str]] = {}
        self.took: dict[str, float] = {}
        """Seconds of the last try."""

    def over(self) -> None:
        """From now on a refusal is a failure of the test."""
        self._over.set()

    def create(self, kind: str, number: int, queue: str | None) -> Obj:
        name = f"{kind}-{number}-{'ours' if queue else 'others'}"
        with Rest(self._kubeconfig) as rest:
            place = copy.copy(self._place)
            place.rest = rest
            make = place.pod if kind == "pod" else place.job
            while True:
                late, start = self._over.is_set(), time.monotonic()
                try:
                    made = make(name, queue, "100m", run=0)
                except httpx.HTTPStatusError as error:
                    if late:
                        raise
                    self.refusals.setdefault(name, []).append(str(error))
                    self._over.wait(PAUSE)
                else:
                    self.took[name] = time.monotonic() - start
                    return {**made, "kind": kind.capitalize()}


@contextmanager
def on_a_real_plane(folder: Path) -> Iterator[tuple[LocalCluster, Rest]]:
    """A manager outside of a real control plane, whose API server knows it by URL."""
    with real_cluster(folder, frameworks=("batch/job", "pod")) as cluster:
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        with Rest(cluster.kubeconfig) as rest:
            yield cluster, rest


REAL = pytest.param(on_a_real_plane, marks=pytest.mark.skipif(bool(lacking()), reason=lacking()))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("outage", [refusing, silent])
@pytest.mark.parametrize("made", [shared_cluster, REAL])
def test_others_notice_nothing_and_ours_are_queued_or_reported(
    made: Callable, outage: Callable, tmp_path: Path
) -> None:
    with made(tmp_path) as (cluster, rest):
        place = Place(rest)
        eventually(lambda: rest.get(f"/api/v1/namespaces/{place.ns}/serviceaccounts/default"))
        place.queue(1000)
        creations = Creations(place, cluster.kubeconfig)
        cluster.processes.kill("manager")
        began = time.monotonic()
        wanted = [("pod", number) for number in range(PODS // 2)]
        wanted += [("job", number) for number in range(JOBS // 2)]
        with ThreadPoolExecutor(len(wanted)) as pool:
            try:
                with outage(cluster.webhook_port):
                    pending = [pool.submit(creations.create, *each, "q") for each in wanted]
                    others = [creations.create(*each, None) for each in wanted]
                    assert gates(in_a_system_namespace(rest)) == []
                    for one in others:
                        eventually(lambda one=one: ended(place.get(one)), WAIT)
                    time.sleep(max(0.0, SECONDS - (time.monotonic() - began)))
                    assert not any(each.done() for each in pending)
                cluster.start_manager()
                cluster.wait_for_manager()
            finally:
                creations.over()
            ours = [each.result(WAIT) for each in pending]
        slow = {name: took for name, took in creations.took.items() if "others" in name}
        assert max(slow.values()) < TIMEOUT_SECONDS
        mine = {one["metadata"]["name"] for one in ours}
        assert set(creations.refusals) == mine
        for name, refusals in creations.refusals.items():
            assert all(f"m{name[:3]}.kb.io" in each for each in refusals), refusals
        for one in ours:
            assert gates(one) == GATES if one["kind"] == "Pod" else one["spec"]["suspend"]
        owners = lambda: {  # noqa: E731
            ref["name"]
            for wl in rest.items(place.workloads)
            if is_true(wl, "Admitted")
            for ref in wl["metadata"]["ownerReferences"]
        }
        eventually(lambda: owners() == mine, WAIT)
        for one in ours:
            eventually(lambda one=one: ended(place.get(one)), WAIT)
        tried = sum(map(len, creations.refusals.values()))
        print(
            f"{SECONDS:g} s: {tried} refusals of {len(mine)} objects; the {len(slow)} of others "
            f"took {max(slow.values()):.2f} s at most"
        )


def in_a_system_namespace(rest: Rest) -> Obj:
    """A Pod with our label that nobody queues: pods of `kube-system` are none of our business."""
    spec = pod_spec("100m")
    meta = {"name": "labelled", "labels": {QUEUE: "q"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    return rest.create("/api/v1/namespaces/kube-system/pods", pod)


def ended(obj: Obj) -> bool:
    return phase(obj) == "Succeeded" if obj["kind"] == "Pod" else is_true(obj, "Complete")
