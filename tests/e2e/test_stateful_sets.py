"""The life of StatefulSets: admitted as a whole, made in order, preempted, scaled to 0 and back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from place import GROUP, QUEUE, Place, container, gates, name_of, phase, shared_cluster
from rest import Obj, Rest, condition, eventually, is_true

PRIORITY = "kueue.x-k8s.io/priority-class"
POOL = {"kueuelib.dev/pool": "spot"}


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    folder = tmp_path_factory.mktemp("sets")
    with shared_cluster(folder, frameworks=("batch/job", "statefulset")) as (_, rest):
        yield rest


class Sets:
    """StatefulSets in a namespace of their own."""

    def __init__(self, rest: Rest, cpu: int) -> None:
        self.rest = rest
        self.place = Place(rest)
        self.place.queue(cpu, flavors={"spot": POOL}, **self.place.preempting())
        self.path = f"/apis/apps/v1/namespaces/{self.place.ns}/statefulsets"

    def create(self, name: str, replicas: int, priority: str = "", **spec: Obj | str) -> Obj:
        labels = {QUEUE: "q"} | ({PRIORITY: priority} if priority else {})
        pod = {"terminationGracePeriodSeconds": 0, "containers": [container()]}
        template = {"metadata": {"labels": {"app": name}}, "spec": pod}
        full = {
            "replicas": replicas,
            "serviceName": name,
            "template": template,
            "selector": {"matchLabels": {"app": name}},
            **spec,
        }
        return self.rest.create(
            self.path, {"metadata": {"name": name, "labels": labels}, "spec": full}
        )

    def change(self, name: str, **spec: object) -> Obj:
        return self.rest.merge(f"{self.path}/{name}", {"spec": spec})

    def scale(self, name: str, replicas: int) -> None:
        """As `kubectl scale`, which no webhook of ours sees."""
        self.rest.merge(f"{self.path}/{name}/scale", {"spec": {"replicas": replicas}})

    def pods(self, name: str) -> list[Obj]:
        found = self.rest.items(self.place.pods)
        mine = [pod for pod in found if pod["metadata"]["labels"]["app"] == name]
        return sorted(mine, key=name_of)

    def running(self, name: str) -> list[str]:
        return [name_of(pod) for pod in self.pods(name) if phase(pod) == "Running"]

    def gated(self, name: str) -> list[str]:
        return [name_of(pod) for pod in self.pods(name) if gates(pod)]

    def run(self, name: str, count: int) -> None:
        wanted = [f"{name}-{ordinal}" for ordinal in range(count)]
        eventually(lambda: self.running(name) == wanted)

    def workload(self, name: str) -> Obj:
        return self.place.workload(self.rest.get(f"{self.path}/{name}"))

    def holds_nothing(self, name: str) -> None:
        obj = self.rest.get(f"{self.path}/{name}")
        eventually(lambda: self.place.workloads_of(obj) == [])


def test_a_stateful_set_is_admitted_before_its_pods_exist_and_preempted_as_a_whole(
    rest: Rest,
) -> None:
    sets = Sets(rest, 3)
    for base, value in (("low", 1), ("high", 2)):
        sets.place.priority(value, base)
    stored = sets.create("low", 3, sets.place.named("low"))
    labels = stored["spec"]["template"]["metadata"]["labels"]
    sets.run("low", 3)
    found = sets.workload("low")
    assert name_of(found) == labels[GROUP]
    assert [entry["count"] for entry in found["spec"]["podSets"]] == [3]
    assert all(pod["spec"]["nodeSelector"] == POOL for pod in sets.pods("low"))

    sets.create("high", 2, sets.place.named("high"))
    sets.run("high", 2)
    eventually(lambda: sets.gated("low") == ["low-0"])
    waiting = sets.workload("low")
    assert waiting["metadata"]["uid"] == found["metadata"]["uid"], "it outlives its pods"
    assert condition(waiting, "Evicted")["reason"] == "Preempted"
    assert not is_true(waiting, "QuotaReserved")

    rest.delete(f"{sets.path}/high")
    sets.run("low", 3)


def test_pods_that_are_gone_come_again_with_the_same_quota(rest: Rest) -> None:
    sets = Sets(rest, 2)
    sets.create("s", 2)
    sets.run("s", 2)
    before = sets.pods("s")
    sets.place.delete(*({"kind": "Pod", **pod} for pod in before))
    sets.place.gone(*({"kind": "Pod", **pod} for pod in before))
    sets.run("s", 2)
    template = {"metadata": {"annotations": {"version": "2"}}}
    sets.change("s", template=template)

    def updated() -> bool:
        notes = [pod["metadata"]["annotations"].get("version") for pod in sets.pods("s")]
        return notes == ["2", "2"] and len(sets.running("s")) == len(notes)

    eventually(updated)
    assert is_true(sets.workload("s"), "Admitted")


def test_a_stateful_set_is_scaled_to_zero_and_up_again(rest: Rest) -> None:
    sets = Sets(rest, 4)
    sets.create("s", 2, podManagementPolicy="Parallel")
    sets.run("s", 2)
    sets.place.refused(lambda: sets.change("s", replicas=3), "spec.replicas", "to 0 first")
    bigger = {"spec": {"containers": [container("2")]}}
    sets.place.refused(lambda: sets.change("s", template=bigger), "spec.template.spec")
    sets.scale("s", 3)
    eventually(lambda: sets.gated("s") == ["s-2"])
    sets.place.quiet(lambda: sets.gated("s") == ["s-2"] and len(sets.running("s")) == 2)
    sets.scale("s", 0)
    eventually(lambda: sets.pods("s") == [])
    sets.holds_nothing("s")
    sets.scale("s", 4)
    sets.run("s", 4)
    assert [entry["count"] for entry in sets.workload("s")["spec"]["podSets"]] == [4]
    rest.delete(f"{sets.path}/s")
    eventually(lambda: rest.items(sets.place.pods) == [])
    eventually(lambda: rest.items(sets.place.workloads) == [])
