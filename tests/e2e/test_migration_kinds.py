"""RayServices and SparkApplications, from the Go manager to ours and back.

No operator of these kinds is there: the test writes what theirs would say.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from place import QUEUE, Place, uid_of
from real_plane import real_plane
from rest import Obj, Rest, eventually, is_true
from test_migration import FRAMEWORKS, MISSING, STILL, Managers

sys.path.insert(0, str(Path(__file__).parents[1] / "kinds"))

from samples import Sample, definition, samples

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS = ("ray.io/rayservice", "sparkoperator.k8s.io/sparkapplication")
NEEDED = ("ray.io/raycluster", "ray.io/rayjob")
"""The Go manager also reads these kinds."""
GATES = ("SparkApplicationIntegration",)
WAITS_AS_FOR_GO = {"suspend": False, "rayClusterConfig": {"suspend": True}}
"""What `docs/migration.md` writes into RayServices that wait."""
ANY = {"spec": "any", "status": "any"}


class Kind:
    """One kind, with a queue in which one job fits at a time."""

    def __init__(self, place: Place, name: str) -> None:
        self.rest, self.place = place.rest, place
        self.sample: Sample = samples()[name]
        resource = self.sample.resource
        self.base = resource.plural
        self.path = f"/apis/{resource.api_version}/namespaces/{place.ns}/{resource.plural}"
        self.is_ray = resource.group == "ray.io"
        flavor = place.create("ResourceFlavor", self.base, spec={})
        quota = [("cpu", "5" if self.is_ray else "3"), ("memory", "100Gi")]
        rows = [{"name": each, "nominalQuota": amount} for each, amount in quota]
        flavors = [{"name": flavor, "resources": rows}]
        group = {"coveredResources": ["cpu", "memory"], "flavors": flavors}
        spec: Obj = {"namespaceSelector": {}, "resourceGroups": [group]}
        place.create("ClusterQueue", self.base, spec=spec)
        place.local_queue(self.base)

    def create(self, name: str) -> None:
        job = self.sample.job(labels={QUEUE: self.base})
        job["metadata"]["name"] = name
        eventually(lambda: self.rest.create(self.path, job))

    def get(self, name: str) -> Obj:
        return self.rest.get(f"{self.path}/{name}")

    def says(self, name: str, state: str) -> None:
        """What its operator writes."""
        self.rest.merge(f"{self.path}/{name}/status", {"status": self.sample.status(state)})

    def runs(self, name: str) -> bool:
        """Whether its operator would make pods."""
        spec = self.get(name)["spec"]
        inner = spec.get("rayClusterConfig") or {}
        return not spec.get("suspend") and not inner.get("suspend")

    def workload(self, name: str) -> Obj:
        return self.place.workload({"kind": self.sample.resource.kind, **self.get(name)})

    def state(self, name: str) -> list[object]:
        """What a change of managers must leave as it is."""
        workload, job = self.workload(name), self.get(name)
        reserved = [is_true(workload, each) for each in ("QuotaReserved", "Admitted", "Evicted")]
        spec = job["spec"] if reserved[1] else None
        admission = workload["status"].get("admission")
        return [uid_of(job), spec, uid_of(workload), admission, reserved]


def states(kinds: list[Kind], *names: str) -> list[list[object]]:
    return [kind.state(name) for kind in kinds for name in names]


def assert_still(kinds: list[Kind], before: list[list[object]], running: str, waiting: str) -> None:
    """Now, and as long as a manager would need that wants to change something."""
    deadline = time.monotonic() + STILL
    while time.monotonic() < deadline:
        assert states(kinds, running, waiting) == before
        assert all(kind.runs(running) for kind in kinds)
        assert not any(kind.runs(waiting) for kind in kinds)
        time.sleep(1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_running_jobs_stay_and_waiting_ones_start_later(tmp_path: Path) -> None:
    with real_plane(tmp_path) as plane, Rest(plane.kubeconfig) as rest:
        for name in (*KINDS, *NEEDED):
            resource = samples()[name].resource
            rest.create(CRDS, definition(resource, resource.kind, "Namespaced", ANY))
        managers = Managers(plane, rest, tmp_path, (*FRAMEWORKS, *KINDS), GATES)
        managers.install_go()
        with managers.go():
            place = Place(rest)
            kinds = [Kind(place, name) for name in KINDS]
            for kind in kinds:
                kind.create("one")
                eventually(lambda kind=kind: kind.runs("one"))
                kind.says("one", "running")
                kind.create("two")
            time.sleep(STILL)
            before = states(kinds, "one", "two")
        managers.install_ours()
        with managers.ours():
            assert_still(kinds, before, "one", "two")
            for kind in kinds:
                if kind.get("two")["spec"].get("suspend"):
                    kind.says("two", "stopped")
                rest.delete(f"{kind.path}/one")
                eventually(lambda kind=kind: kind.runs("two"))
                kind.says("two", "running")
                kind.create("three")
            time.sleep(STILL)
            before = states(kinds, "two", "three")
        managers.install_go()
        with managers.go():
            assert_still(kinds, before, "two", "three")
            for kind in kinds:
                rest.delete(f"{kind.path}/two")
                eventually(lambda kind=kind: is_true(kind.workload("three"), "Admitted"))
                if kind.is_ray:
                    time.sleep(STILL)
                    assert not kind.runs("three"), "the Go manager does not know the field"
                    rest.merge(f"{kind.path}/three", {"spec": WAITS_AS_FOR_GO})
                eventually(lambda kind=kind: kind.runs("three"))
