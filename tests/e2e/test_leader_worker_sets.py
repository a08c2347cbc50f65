"""The life of LeaderWorkerSets: a Workload for each replica, with leader and workers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from place import GROUP, QUEUE, TOTAL, Place, container, name_of, phase, shared_cluster, uid_of
from rest import Obj, Rest, condition, eventually, is_true

from kueuelib.api.kinds import LEADER_WORKER_SETS

sys.path.insert(0, str(Path(__file__).parents[1] / "kinds"))

from samples import definition

PRIORITY = "kueue.x-k8s.io/priority-class"
LWS = "leaderworkerset.sigs.k8s.io"
POOL = {"kueuelib.dev/pool": "spot"}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCHEMA = {
    "spec": {
        "replicas": "integer=1",
        "startupPolicy": "string",
        "leaderWorkerTemplate": {
            "size": "integer=1",
            "leaderTemplate": "PodTemplate",
            "workerTemplate": "PodTemplate",
        },
    },
    "status": {"replicas": "integer", "readyReplicas": "integer", "updatedReplicas": "integer"},
}


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    """The CRD comes after the manager."""
    folder = tmp_path_factory.mktemp("sets")
    kind = LEADER_WORKER_SETS
    frameworks = ("statefulset", "leaderworkerset.x-k8s.io/leaderworkerset")
    with shared_cluster(folder, frameworks=frameworks) as (_, rest):
        rest.create(CRDS, definition(kind, kind.kind, "Namespaced", SCHEMA))
        yield rest


class Sets:
    """LeaderWorkerSets in a namespace of their own, and what their controller does."""

    def __init__(self, rest: Rest, cpu: int) -> None:
        self.rest = rest
        self.place = Place(rest)
        self.place.queue(cpu, flavors={"spot": POOL}, **self.place.preempting())
        self.path = f"/apis/{LEADER_WORKER_SETS.api_version}/namespaces/{self.place.ns}"
        self.path += f"/{LEADER_WORKER_SETS.plural}"
        self.stateful = f"/apis/apps/v1/namespaces/{self.place.ns}/statefulsets"
        eventually(lambda: rest.items(self.path) == [])

    def create(self, name: str, replicas: int, size: int, priority: str = "") -> Obj:
        labels = {QUEUE: "q"} | ({PRIORITY: priority} if priority else {})
        pod = {"containers": [container()]}
        parts = {"size": size, "leaderTemplate": {"spec": pod}, "workerTemplate": {"spec": pod}}
        spec = {"replicas": replicas, "leaderWorkerTemplate": parts}
        head = {"apiVersion": LEADER_WORKER_SETS.api_version, "kind": LEADER_WORKER_SETS.kind}
        return self.rest.create(
            self.path, {**head, "metadata": {"name": name, "labels": labels}, "spec": spec}
        )

    def change(self, name: str, **spec: object) -> Obj:
        return self.rest.merge(f"{self.path}/{name}", {"spec": spec})

    # ---- the controller

    def step(self) -> None:
        """One look at every set, and a StatefulSet for all leaders and for each one's workers."""
        known = {name_of(each): each for each in self.rest.items(self.stateful)}
        for found in self.rest.items(self.path):
            self._lead(found, known)

    def _lead(self, found: Obj, known: dict[str, Obj]) -> None:
        name, parts = name_of(found), found["spec"]["leaderWorkerTemplate"]
        labels = {f"{LWS}/name": name}
        ref = {"apiVersion": found["apiVersion"], "kind": found["kind"], "name": name}
        leaders = known.get(name)
        wanted = found["spec"]["replicas"]
        if leaders is None:
            template, role = parts["leaderTemplate"], {f"{LWS}/worker-index": "0"}
            self._make(name, found, ref, template, {**labels, **role}, {}, replicas=wanted)
        elif leaders["spec"]["replicas"] != wanted:
            self.rest.merge(f"{self.stateful}/{name}", {"spec": {"replicas": wanted}})
        leads = f"{LWS}/worker-index"
        mine = [pod for pod in self.pods(name) if leads in pod["metadata"]["labels"]]
        for pod in mine:
            if name_of(pod) in known or "deletionTimestamp" in pod["metadata"]:
                continue
            index = name_of(pod).removeprefix(f"{name}-")
            of = {"apiVersion": "v1", "kind": "Pod", "name": name_of(pod)}
            notes = {f"{LWS}/leader-name": name_of(pod)}
            more = {**labels, f"{LWS}/group-index": index}
            ordinals = {"ordinals": {"start": 1}, "replicas": parts["size"] - 1}
            self._make(name_of(pod), pod, of, parts["workerTemplate"], more, notes, **ordinals)
        status = {"replicas": len(mine)}
        if found.get("status") != status:
            self.rest.merge(f"{self.path}/{name}/status", {"status": status})

    def _make(
        self,
        name: str,
        owner: Obj,
        ref: Obj,
        template: Obj,
        labels: Obj,
        notes: Obj,
        **spec: object,
    ) -> None:
        size = self.size_of(labels[f"{LWS}/name"])
        meta = template["metadata"]
        meta = {
            "labels": {**meta["labels"], **labels},
            "annotations": {**meta["annotations"], **notes, f"{LWS}/size": str(size)},
        }
        full = {
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": meta, "spec": template["spec"]},
            **spec,
        }
        full["template"]["spec"]["terminationGracePeriodSeconds"] = 0
        refs = [{**ref, "uid": owner["metadata"]["uid"], "controller": True}]
        head = {"name": name, "ownerReferences": refs, "labels": {QUEUE: "q", **labels}}
        self.rest.create(self.stateful, {"metadata": head, "spec": full})

    def size_of(self, name: str) -> int:
        found = self.rest.get(f"{self.path}/{name}")["spec"]["leaderWorkerTemplate"]
        return int(found["size"])

    # ---- what is there

    def until(self, fact: Callable[[], bool]) -> None:
        def so() -> bool:
            self.step()
            return fact()

        eventually(so)

    def pods(self, name: str) -> list[Obj]:
        found = self.rest.items(self.place.pods)
        mine = [pod for pod in found if pod["metadata"]["labels"][f"{LWS}/name"] == name]
        return sorted(mine, key=name_of)

    def running(self, name: str) -> list[str]:
        return [name_of(pod) for pod in self.pods(name) if phase(pod) == "Running"]

    def run(self, name: str, replicas: int, size: int) -> None:
        wanted = [
            f"{name}-{index}" + (f"-{worker}" if worker else "")
            for index in range(replicas)
            for worker in range(size)
        ]
        self.until(lambda: self.running(name) == wanted)

    def workloads(self, name: str) -> list[Obj]:
        return self.place.workloads_of(self.rest.get(f"{self.path}/{name}"))


def test_each_replica_is_admitted_by_itself_and_preempted_as_a_whole(rest: Rest) -> None:
    sets = Sets(rest, 6)
    for base, value in (("low", 1), ("high", 2)):
        sets.place.priority(value, base)
    sets.create("low", 3, 2, sets.place.named("low"))
    sets.run("low", 3, 2)
    found = sets.workloads("low")
    shapes = [[(p["name"], p["count"]) for p in w["spec"]["podSets"]] for w in found]
    assert shapes == [[("leader", 1), ("worker", 1)]] * 3
    for pod in sets.pods("low"):
        assert pod["spec"]["nodeSelector"] == POOL
        assert pod["metadata"]["labels"][GROUP] in {name_of(each) for each in found}
        assert pod["metadata"]["annotations"][TOTAL] == "2"

    sets.create("high", 1, 4, sets.place.named("high"))
    sets.run("high", 1, 4)
    sets.until(lambda: len(sets.running("low")) == 2)
    evicted = [each for each in sets.workloads("low") if not is_true(each, "QuotaReserved")]
    assert [condition(each, "Evicted")["reason"] for each in evicted] == ["Preempted"] * 2
    uids = {each["metadata"]["uid"] for each in found}
    assert {each["metadata"]["uid"] for each in sets.workloads("low")} == uids

    rest.delete(f"{sets.path}/high?propagationPolicy=Background")
    sets.run("low", 3, 2)


def test_replicas_come_and_go_with_their_quota(rest: Rest) -> None:
    sets = Sets(rest, 4)
    sets.create("l", 1, 2)
    sets.run("l", 1, 2)
    (first,) = sets.workloads("l")
    sets.change("l", replicas=2)
    sets.run("l", 2, 2)
    sets.place.refused(
        lambda: sets.change("l", leaderWorkerTemplate={"size": 3}), "size", "to 0 first"
    )
    sets.change("l", replicas=1)
    sets.run("l", 1, 2)
    sets.until(lambda: [name_of(each) for each in sets.workloads("l")] == [name_of(first)])
    worker = uid_of(rest.get(f"{sets.place.pods}/l-0-1"))
    rest.delete(f"{sets.place.pods}/l-0-1")
    sets.until(lambda: worker not in map(uid_of, sets.pods("l")))
    sets.run("l", 1, 2)
    assert is_true(sets.workloads("l")[0], "Admitted")
    sets.change("l", replicas=0)
    sets.until(lambda: sets.pods("l") == [] and sets.workloads("l") == [])
    sets.change("l", leaderWorkerTemplate={"size": 4})
    sets.change("l", replicas=1)
    rest.delete(f"{sets.stateful}/l")
    sets.run("l", 1, 4)
    rest.delete(f"{sets.path}/l?propagationPolicy=Background")
    eventually(lambda: rest.items(sets.place.pods) == [])
    eventually(lambda: rest.items(sets.place.workloads) == [])
