"""A tool that applies the same manifest of a Job again and again, with a real kubectl."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from place import QUEUE, Place, pod_spec, shared_cluster, uid_of
from rest import KUEUE, Rest

from kueuelib.testing.processes import LocalCluster

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH"),
]

WANTED = {"kueuelib.dev/pool": "spot"}
ADDED = {"kueuelib.dev/simulated": "true"}
TOLERATION = {"key": "spot", "operator": "Exists"}
BY_SERVER = ("--server-side", "--field-manager=gitops")
BY_CLIENT: tuple[str, ...] = ()
FORCED = {BY_SERVER: ("--force-conflicts",), BY_CLIENT: ()}
LEAST = "kueue.x-k8s.io/job-min-parallelism"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, Rest]]:
    with shared_cluster(tmp_path_factory.mktemp("applied")) as found:
        yield found


@attrs.frozen
class Tool:
    """Keeps a Job of a place as a manifest declares it.

    Attributes:
        kubeconfig: of the cluster.
        folder: for the manifest.
        options: of `kubectl apply`.
    """

    kubeconfig: Path
    folder: Path
    options: tuple[str, ...]

    def declare(
        self, place: Place, own: dict | None = None, notes: dict | None = None, **spec: Any
    ) -> None:
        """Write the manifest of a Job named `job` whose pods have these fields.

        Args:
            place: where it belongs.
            own: fields of the Job itself.
            notes: annotations of the Job.
            spec: fields of its pods.
        """
        meta = {"name": "job", "namespace": place.ns, "labels": {QUEUE: "q"}}
        template = {"spec": {**pod_spec(**spec), "restartPolicy": "Never"}}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {**meta, "annotations": notes} if notes else meta,
            "spec": {"template": template, **(own or {})},
        }
        (self.folder / "job.json").write_text(json.dumps(job))

    def apply(self, *more: str) -> subprocess.CompletedProcess[str]:
        """Apply it."""
        return subprocess.run(
            ["kubectl", "apply", "-f", str(self.folder / "job.json"), *self.options, *more],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )


def template(place: Place, job: dict) -> dict:
    return place.get(job)["spec"]["template"]["spec"]


@pytest.mark.parametrize("options", [BY_CLIENT, BY_SERVER], ids=["client-side", "server-side"])
def test_an_unchanged_manifest_changes_nothing(
    shared: tuple[LocalCluster, Rest], tmp_path: Path, options: tuple[str, ...]
) -> None:
    cluster, rest = shared
    place = Place(rest)
    place.queue(1, flavors={"flavor": ADDED})
    tool = Tool(cluster.kubeconfig, tmp_path, options)
    tool.declare(place, nodeSelector=WANTED, tolerations=[TOLERATION])
    assert tool.apply().returncode == 0
    live = rest.get(f"{place.jobs}/job")
    place.runs(live)
    workload = uid_of(place.workload(live))
    assert template(place, live)["nodeSelector"] == {**WANTED, **ADDED}

    again = tool.apply()  # with server-side apply, the selector now belongs to another manager
    assert (again.returncode == 0) is (options == BY_CLIENT), again.stderr
    if options == BY_SERVER:
        assert "nodeSelector" in again.stderr
        forced = tool.apply("--force-conflicts")
        assert "field is immutable" in forced.stderr
    place.runs(live)
    assert template(place, live)["nodeSelector"] == {**WANTED, **ADDED}

    place.evict(live)
    place.suspended(live)
    place.eventually(lambda: template(place, live)["nodeSelector"] == WANTED)
    place.waits(live)
    stored = place.get(live)
    again = tool.apply()
    assert again.returncode == 0, again.stderr
    newest = place.get(live)
    assert newest["metadata"]["generation"] == stored["metadata"]["generation"]
    assert newest["spec"]["template"] == stored["spec"]["template"]
    assert template(place, live)["tolerations"] == [TOLERATION]
    assert uid_of(place.workload(live)) == workload


@pytest.mark.parametrize("options", [BY_CLIENT, BY_SERVER], ids=["client-side", "server-side"])
def test_a_changed_manifest_of_a_waiting_job_counts(
    shared: tuple[LocalCluster, Rest], tmp_path: Path, options: tuple[str, ...]
) -> None:
    cluster, rest = shared
    place = Place(rest)
    pools = {"first": {"kueuelib.dev/pool": "on-demand"}, "second": WANTED}
    place.queue(1, flavors=pools, stopPolicy="Hold")
    tool = Tool(cluster.kubeconfig, tmp_path, options)
    tool.declare(place)
    assert tool.apply().returncode == 0
    live = rest.get(f"{place.jobs}/job")
    workload = uid_of(place.waits(live))
    tool.declare(place, nodeSelector=WANTED)
    assert tool.apply().returncode == 0
    rest.merge(f"{KUEUE}/clusterqueues/{place.named('q')}", {"spec": {"stopPolicy": "None"}})
    place.runs(live)
    admitted = place.admitted(live)
    (assigned,) = admitted["status"]["admission"]["podSetAssignments"]
    assert assigned["flavors"]["cpu"] == place.named("second")
    assert uid_of(admitted) == workload
    assert template(place, live)["nodeSelector"] == WANTED


def test_a_manifest_that_suspends_stops_a_running_job_which_starts_again(
    shared: tuple[LocalCluster, Rest], tmp_path: Path
) -> None:
    cluster, rest = shared
    place = Place(rest)
    place.queue(1)
    tool = Tool(cluster.kubeconfig, tmp_path, BY_CLIENT)
    tool.declare(place, own={"suspend": True})
    assert tool.apply().returncode == 0
    live = rest.get(f"{place.jobs}/job")
    place.runs(live)
    workload, (pod,) = uid_of(place.workload(live)), place.pods_of(live)
    assert tool.apply().returncode == 0
    place.gone(pod)
    place.runs(live)
    assert uid_of(place.workload(live)) == workload


def test_a_manifest_that_unsuspends_is_applied_to_a_waiting_job(
    shared: tuple[LocalCluster, Rest], tmp_path: Path
) -> None:
    """The job is suspended again, and an edit in the manifest is kept."""
    cluster, rest = shared
    place = Place(rest)
    place.queue(1, stopPolicy="Hold")
    tool = Tool(cluster.kubeconfig, tmp_path, BY_CLIENT)
    tool.declare(place, own={"suspend": False})
    assert tool.apply().returncode == 0
    live = rest.get(f"{place.jobs}/job")
    workload = uid_of(place.waits(live))
    tool.declare(place, own={"suspend": False}, nodeSelector=WANTED)
    assert tool.apply().returncode == 0
    place.suspended(live)
    place.event(live, "Stopped")
    place.event(live, "UpdatedWorkload")
    assert template(place, live)["nodeSelector"] == WANTED
    stored = place.workload(live)
    assert uid_of(stored) == workload
    (asked,) = stored["spec"]["podSets"]
    assert asked["template"]["spec"]["nodeSelector"] == WANTED


@pytest.mark.parametrize("options", [BY_CLIENT, BY_SERVER], ids=["client-side", "server-side"])
def test_a_manifest_of_a_job_that_runs_with_fewer_pods_is_refused(
    shared: tuple[LocalCluster, Rest], tmp_path: Path, options: tuple[str, ...]
) -> None:
    cluster, rest = shared
    place = Place(rest)
    place.queue(1)
    tool = Tool(cluster.kubeconfig, tmp_path, options)
    tool.declare(place, own={"parallelism": 2}, notes={LEAST: "1"})
    assert tool.apply().returncode == 0
    live = rest.get(f"{place.jobs}/job")
    place.runs(live)
    assert place.get(live)["spec"]["parallelism"] == 1
    again = tool.apply(*FORCED[options])
    assert again.returncode != 0
    assert "parallelism" in again.stderr, again.stderr
    assert place.get(live)["spec"]["parallelism"] == 1


def test_after_a_stop_a_changed_selector_has_to_be_forced(
    shared: tuple[LocalCluster, Rest], tmp_path: Path
) -> None:
    """It belongs to the manager's writes as well."""
    cluster, rest = shared
    place = Place(rest)
    place.queue(1, flavors={"flavor": ADDED})
    tool = Tool(cluster.kubeconfig, tmp_path, BY_SERVER)
    tool.declare(place, nodeSelector=WANTED)
    assert tool.apply().returncode == 0
    live = rest.get(f"{place.jobs}/job")
    place.runs(live)
    place.evict(live)
    place.suspended(live)
    place.eventually(lambda: template(place, live)["nodeSelector"] == WANTED)
    place.waits(live)

    tool.declare(place)
    assert tool.apply().returncode == 0
    assert template(place, live)["nodeSelector"] == WANTED
    other = {"kueuelib.dev/pool": "on-demand"}
    tool.declare(place, nodeSelector=other)
    again = tool.apply()
    assert 'conflict with "kueue"' in again.stderr
    assert "nodeSelector" in again.stderr
    assert tool.apply("--force-conflicts").returncode == 0
    assert template(place, live)["nodeSelector"] == other
