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

    def declare(self, place: Place, **spec: Any) -> None:
        """Write the manifest of a Job named `job` whose pods have these fields."""
        labels = {QUEUE: "q"}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "job", "namespace": place.ns, "labels": labels},
            "spec": {"template": {"spec": {**pod_spec(**spec), "restartPolicy": "Never"}}},
        }
        (self.folder / "job.json").write_text(json.dumps(job))

    def apply(self, *more: str) -> subprocess.CompletedProcess[str]:
        """Apply it."""
        return subprocess.run(
            ["kubectl", "apply", "-f", str(self.folder / "job.json"), *self.options, *more],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=60,
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
