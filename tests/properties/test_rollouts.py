"""Laws of the simulated controllers of Deployments and ReplicaSets, over random histories."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kueuelib.api.meta import Obj, annotations_of, find_condition, format_time
from kueuelib.embedded.cluster import replica_sets
from kueuelib.embedded.cluster.owned_pods import from_template, is_active, is_ready
from kueuelib.embedded.cluster.replica_sets import wanted
from kueuelib.embedded.cluster.rollout import REVISION, allowances, decide, revision_of

SEVERAL = st.integers(0, 3)
AMOUNTS = st.sampled_from([0, 1, 2, "0%", "25%", "40%", "100%"])
ROUNDS = st.lists(st.tuples(st.booleans(), SEVERAL), min_size=1, max_size=6)
ROOM = 10_000


class RolloutHistory(RuleBasedStateMachine):
    """A Deployment that is edited at random, while pods come, become ready and are lost.

    The controllers see what is there at a random pace, each of them by itself.
    """

    @initialize(
        replicas=st.integers(1, 6),
        surge=AMOUNTS,
        missing=AMOUNTS,
        recreate=st.booleans(),
        history=st.none() | SEVERAL,
        deadline=st.none() | st.integers(2, 50),
        ready=st.sampled_from([0, 0, 1]),
    )
    def begin(
        self,
        replicas: int,
        surge: int | str,
        missing: int | str,
        recreate: bool,
        history: int | None,
        deadline: int | None,
        ready: int,
    ) -> None:
        if not recreate and {surge, missing} <= {0, "0%"}:
            surge = 1
        rolling = {"maxSurge": surge, "maxUnavailable": missing}
        way: Obj = {"type": "RollingUpdate", "rollingUpdate": rolling}
        self.deployment: Obj = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "n", "uid": "d", "generation": 1},
            "spec": {
                "replicas": replicas,
                "strategy": {"type": "Recreate"} if recreate else way,
                "selector": {"matchLabels": {"app": "d"}},
                "template": template(0),
                "minReadySeconds": ready,
                "revisionHistoryLimit": history,
                "progressDeadlineSeconds": deadline,
            },
        }
        self.sets: dict[str, Obj] = {}
        self.pods: dict[str, Obj] = {}
        self.owner: dict[str, str] = {}
        self.now = 1_800_000_000.0
        self.made = 0
        self.revision = 0
        self.scaled = True
        self.everything_settles()

    # ---- the world

    def named(self, kind: str) -> Obj:
        self.made += 1
        name = f"{kind}{self.made}"
        return {"uid": name, "resourceVersion": "1", "creationTimestamp": f"{self.made:09}"}

    def edit(self, **spec: Any) -> None:
        meta = self.deployment["metadata"]
        meta = {**meta, "generation": meta["generation"] + 1}
        self.deployment = {**self.deployment, "metadata": meta, "spec": self.spec | spec}

    @property
    def spec(self) -> Obj:
        return self.deployment["spec"]

    def of(self, uid: str) -> list[Obj]:
        return [pod for name, pod in self.pods.items() if self.owner[name] == uid]

    def available(self, uid: str) -> list[Obj]:
        status, _ = replica_sets.status_of(self.sets[uid], self.of(uid), None, self.now)
        return [pod for pod in self.of(uid) if is_active(pod) and is_ready(pod)][
            : status.get("availableReplicas", 0)
        ]

    def total(self) -> int:
        return sum(map(wanted, self.sets.values()))

    def look_at_deployment(self) -> bool:
        """Lets its controller work once; returns whether it has changed anything."""
        alive = {
            uid: sum(pod["status"]["phase"] != "Failed" for pod in self.of(uid))
            for uid in self.sets
        }
        step = decide(self.deployment, self.sets.values(), alive, self.now)
        before, sure = self.total(), self.surely_available()
        surge, missing = allowances(self.deployment)
        for change in step.change:
            self.change(change.replica_set, change.patch)
        for gone in step.delete:
            assert not any(map(is_active, self.of(gone["metadata"]["uid"]))), "it is history"
            for pod in self.of(gone["metadata"]["uid"]):
                del self.pods[pod["metadata"]["uid"]]
            del self.sets[gone["metadata"]["uid"]]
        if step.create is not None:
            assert not self.spec.get("paused")
            new = self.named("r")
            names = [each["metadata"]["name"] for each in self.sets.values()]
            assert step.create["metadata"]["name"] not in names
            obj = {**step.create, "metadata": {**step.create["metadata"], **new, "generation": 1}}
            self.sets[new["uid"]] = obj
        if self.total() > before:
            assert self.total() <= wanted(self.deployment) + surge
        if not self.scaled and step.change and self.spec["strategy"]["type"] != "Recreate":
            least = min(sure, wanted(self.deployment) - missing)
            assert self.surely_available() >= least, "it takes away what has to be available"
        others = [revision_of(each) for each in self.sets.values()]
        assert len(set(others)) == len(others), "a revision is given once"
        revision = int(step.revision or self.revision)
        assert self.revision <= revision == max(others, default=revision), "revisions grow"
        self.revision = revision
        notes = {**annotations_of(self.deployment), REVISION: str(revision)}
        old = self.deployment.get("status") or {}
        meta = {**self.deployment["metadata"], "annotations": notes}
        self.deployment = {**self.deployment, "metadata": meta, "status": step.status}
        if not self.spec.get("paused"):
            self.scaled = False
        return bool(step.change or step.delete or step.create or step.status != old)

    def surely_available(self) -> int:
        """Pods that stay available whichever are deleted to reach the sizes of the sets."""
        return sum(min(len(self.available(uid)), wanted(found)) for uid, found in self.sets.items())

    def change(self, found: Obj, patch: Obj) -> None:
        meta, notes = found["metadata"], patch["metadata"]["annotations"]
        meta = {**meta, "annotations": {**annotations_of(found), **notes}}
        meta["generation"] = meta["generation"] + ("spec" in patch)
        spec = {**found["spec"], **patch.get("spec", {})}
        self.sets[meta["uid"]] = {**found, "metadata": meta, "spec": spec}

    def look_at_sets(self) -> bool:
        return any([self.look_at_set(uid) for uid in sorted(self.sets)])  # noqa: C419 - all

    def look_at_set(self, uid: str) -> bool:
        found, pods = self.sets[uid], self.of(uid)
        active = [pod for pod in pods if is_active(pod)]
        step = replica_sets.next_step(found, active, active, ROOM, 0.0)
        assert len(active) + step.create - len(step.delete) == wanted(found)
        lost = [pod for pod in step.delete if is_ready(pod)]
        kept = [pod for pod in active if pod not in step.delete]
        assert not lost or all(map(is_ready, kept)), "pods that are not ready go first"
        for pod in step.delete:
            del self.pods[pod["metadata"]["uid"]]
        for _ in range(step.create):
            pod = from_template(found)
            meta = self.named("p")
            self.owner[meta["uid"]] = uid
            status = {"phase": "Pending", "conditions": []}
            pod["metadata"] |= {**meta, "name": meta["uid"]}
            self.pods[meta["uid"]] = {**pod, "status": status}
        status, _ = replica_sets.status_of(found, self.of(uid), None, self.now)
        self.sets[uid] = {**found, "status": status}
        changed = status != (found.get("status") or {})
        return bool(step.create or step.delete or changed)

    def report(self, pod: Obj, ready: bool) -> None:
        at = format_time(self.now)
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": at}
        status = {"phase": "Running", "conditions": [condition]}
        self.pods[pod["metadata"]["uid"]] = {**pod, "status": status}

    # ---- what happens

    @rule(replicas=st.integers(0, 8))
    def scale(self, replicas: int) -> None:
        self.edit(replicas=replicas)
        self.scaled = True

    @rule(version=SEVERAL, rounds=ROUNDS)
    def roll_out(self, version: int, rounds: list[tuple[bool, int]]) -> None:
        self.edit(template=template(version))
        self.work(rounds)

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.edit(paused=paused)
        self.scaled = True

    @precondition(lambda self: self.sets)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        found = data.draw(st.sampled_from(sorted(self.sets)))
        self.edit(template=self.sets[found]["spec"]["template"])

    @rule(rounds=ROUNDS)
    def the_controllers_work(self, rounds: list[tuple[bool, int]]) -> None:
        self.work(rounds)

    def work(self, rounds: list[tuple[bool, int]]) -> None:
        """In each round some pods become ready, and the controllers look in either order."""
        for first, count in rounds:
            looks = [self.look_at_deployment, self.look_at_sets]
            for look in looks if first else reversed(looks):
                look()
            waiting = [pod for pod in self.pods.values() if is_active(pod) and not is_ready(pod)]
            for pod in waiting[:count]:
                self.report(pod, True)

    @rule()
    def the_controller_of_deployments_looks(self) -> None:
        self.look_at_deployment()

    @precondition(lambda self: self.sets)
    @rule(data=st.data())
    def a_replica_set_is_looked_at(self, data: st.DataObject) -> None:
        self.look_at_set(data.draw(st.sampled_from(sorted(self.sets))))

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), ready=st.sampled_from([True, True, False]))
    def a_pod_reports(self, data: st.DataObject, ready: bool) -> None:
        self.report(self.pods[data.draw(st.sampled_from(sorted(self.pods)))], ready)

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), kept=st.booleans())
    def a_pod_is_lost(self, data: st.DataObject, kept: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.pods)))
        if kept:
            self.pods[name] = {**self.pods[name], "status": {"phase": "Failed"}}
        else:
            del self.pods[name]

    @rule(seconds=st.integers(1, 60))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def everything_settles(self) -> None:
        """All pods become ready in the end, and then nothing changes any further."""
        self.edit(paused=False)
        for _ in range(300):
            changed = self.look_at_deployment()
            changed |= self.look_at_sets()
            waiting = [pod for pod in self.pods.values() if is_active(pod) and not is_ready(pod)]
            for pod in waiting:
                self.report(pod, True)
            self.now += 1
            if not changed and not waiting:
                break
        else:
            raise AssertionError("it never comes to rest")
        count = wanted(self.deployment)
        sizes = {found: wanted(self.sets[found]) for found in self.sets}
        (new,) = [found for found, obj in self.sets.items() if revision_of(obj) == self.revision]
        assert sizes == {**dict.fromkeys(sizes, 0), new: count}
        status, limit = self.deployment["status"], self.spec["revisionHistoryLimit"]
        assert status.get("updatedReplicas", 0) == status.get("availableReplicas", 0) == count
        assert limit is None or len(self.sets) <= limit + 1
        assert find_condition(status["conditions"], "Available")["status"] == "True"
        progress = find_condition(status["conditions"], "Progressing")
        if self.spec["progressDeadlineSeconds"] is None:
            assert not progress
        else:
            assert progress["reason"] == "NewReplicaSetAvailable"


def template(version: int) -> Obj:
    container = {"name": "c", "image": f"i:{version}"}
    return {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [container]}}


TestRolloutHistory = RolloutHistory.TestCase
TestRolloutHistory.settings = settings(max_examples=100, stateful_step_count=20)
