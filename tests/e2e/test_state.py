"""A server that is killed and started again, and snapshots, as processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from rest import Obj, Rest, eventually
from warm import Processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path) as found:
        yield found


def start(processes: Processes, name: str, *args: object) -> Path:
    """Starts a server; its kubeconfig, once it answers."""
    path = processes.folder / name
    path.unlink(missing_ok=True)
    processes.start(name, "apiserver", "--kubeconfig", str(path), *map(str, args))
    processes.wait_for_file(path, name, 60)
    return path


MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str) -> Obj:
    return {"metadata": {"name": name}, "data": {"x": "1"}}


def test_no_acknowledged_write_is_lost_when_the_server_is_killed(processes: Processes) -> None:
    """Several writers go on until the server dies; what they were told is there afterwards."""
    data = processes.folder / "data"
    kubeconfig = start(processes, "first", "--data-dir", data)
    text = kubeconfig.read_text()
    told: dict[str, str] = {}
    enough = threading.Event()

    def write(writer: int) -> None:
        with Rest(kubeconfig) as rest:
            for i in range(10_000):
                name = f"w{writer}-{i}"
                try:
                    made = rest.create(MAPS, config_map(name))
                except httpx.HTTPError:
                    return
                told[name] = made["metadata"]["uid"]
                if len(told) > 300:
                    enough.set()

    writers = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for writer in writers:
        writer.start()
    assert enough.wait(60)
    processes.kill("first")
    for writer in writers:
        writer.join()
    again = start(processes, "second", "--data-dir", data)
    assert yaml.safe_load(again.read_text()) == yaml.safe_load(text)
    with Rest(kubeconfig) as rest:
        found = {each["metadata"]["name"]: each["metadata"]["uid"] for each in rest.items(MAPS)}
    assert told.items() <= found.items()


LIMITED = """
import resource, sys
from kueuelib.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv[:2] = ["kueuelib"]
main()
"""
"""Runs a command for which a disk is full at so many bytes of a file."""


def fill(rest: Rest, told: dict[str, str]) -> None:
    """Makes objects, and remembers their UIDs."""
    for i in range(100):
        big = {**config_map(f"m{i}"), "data": {"x": "x" * 10_000}}
        told[f"m{i}"] = rest.create(MAPS, big)["metadata"]["uid"]


def test_a_server_that_died_on_a_full_disk_goes_on_when_there_is_room(processes: Processes) -> None:
    data, path = processes.folder / "data", processes.folder / "kubeconfig"
    words = ["apiserver", "--kubeconfig", str(path), "--data-dir", str(data)]

    @contextmanager
    def limited(size: int) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-c", LIMITED, str(size), *words]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    told: dict[str, str] = {}
    with limited(400 * 1024) as server:
        processes.wait_for_file(path, "first", 60)
        with Rest(path) as rest:
            with pytest.raises(httpx.HTTPStatusError, match=r"500.*the state cannot be saved"):
                fill(rest, told)
            assert {each["metadata"]["name"] for each in rest.items(MAPS)} == told.keys()
    assert 10 < len(told) < 100
    with limited(4096) as server:
        assert server.wait(60) == 2
        assert server.stderr is not None
        (line,) = server.stderr.read().splitlines()
        assert line.startswith(f"kueuelib: {data / 'state.db'}: ")
        assert line.endswith("give a folder on a disk with space to write to")
    again = start(processes, "again", "--data-dir", data)
    with Rest(again) as rest:
        found = {each["metadata"]["name"]: each["metadata"]["uid"] for each in rest.items(MAPS)}
        assert found == told
        rest.create(MAPS, config_map("later"))


def test_a_log_that_is_damaged_is_refused(processes: Processes) -> None:
    """Once the loss is accepted, the rest is there, certificates included."""
    data = processes.folder / "data"
    first = start(processes, "first", "--data-dir", data)
    ca = yaml.safe_load(first.read_text())["clusters"]
    with Rest(first) as rest:
        for i in range(12):
            rest.create(MAPS, config_map(f"new-{i}"))
    processes.kill("first")
    log = data / "state.db-wal"
    noise = bytearray(log.read_bytes())
    noise[4200:4600] = b"\x5a" * 400
    log.write_bytes(noise)
    words = ("apiserver", "--kubeconfig", "k", "--data-dir", str(data))
    assert processes.start("second", *words).wait(60) == 2
    (line,) = (processes.folder / "second.log").read_text().splitlines()
    assert line.startswith(f"kueuelib: {data / 'state.db'}: ends at resource version ")
    processes.kill("second")
    (data / "latest").unlink()
    third = start(processes, "third", "--data-dir", data)
    assert yaml.safe_load(third.read_text())["clusters"] == ca
    with Rest(third) as rest:
        assert not [each for each in rest.items(MAPS) if each["metadata"]["name"] == "new-11"]


def test_a_server_with_a_folder_ends_quietly(processes: Processes) -> None:
    data = processes.folder / "data"
    path = processes.folder / "kubeconfig"
    server = processes.start(
        "first", "apiserver", "--kubeconfig", str(path), "--data-dir", str(data)
    )
    processes.wait_for_file(path, "first", 60)
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    (line,) = (processes.folder / "first.log").read_text().splitlines()
    assert line.startswith("serving ")


def test_a_folder_in_use_is_refused(processes: Processes) -> None:
    data = processes.folder / "data"
    start(processes, "first", "--data-dir", data)
    second = processes.start("second", "apiserver", "--kubeconfig", "k", "--data-dir", str(data))
    assert second.wait(60) == 2
    assert "another server" in (processes.folder / "second.log").read_text()


def test_a_snapshot_becomes_the_same_cluster(processes: Processes) -> None:
    """The second dump says what the first one said, references between objects included."""
    manifests = processes.folder / "manifests.yaml"
    manifests.write_text(MANIFESTS)
    first = start(processes, "first", "--load", manifests)
    with Rest(first) as rest:
        owner = rest.create(MAPS, config_map("owner"))
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
        }
        child = {"metadata": {"name": "child", "ownerReferences": [reference]}}
        rest.create(MAPS, child)
    snapshot = dumped(processes, first, "snapshot")
    kinds = [each["kind"] for each in snapshot]
    assert {"Namespace", "CustomResourceDefinition", "Box", "ConfigMap"} <= set(kinds)
    second = start(processes, "second", "--load", processes.folder / "snapshot.log")
    assert sorted(dumped(processes, second, "copy"), key=str) == sorted(snapshot, key=str)


def test_a_snapshot_of_a_cluster_that_ran_pods_is_loaded(processes: Processes) -> None:
    """Events are written once, though two API groups show them, and nothing runs again."""
    first = start(processes, "first", "--simulate")
    jobs, pods = f"{BATCH}/jobs", "/api/v1/namespaces/default/pods"
    with Rest(first) as rest:
        rest.create(jobs, job("done"))
        eventually(lambda: rest.get(f"{jobs}/done")["status"].get("succeeded") == 1)
        eventually(lambda: any(each["reason"] == "Completed" for each in rest.items(EVENTS)))
    snapshot = dumped(processes, first, "snapshot")
    processes.stop("first")
    uids = [each["metadata"]["uid"] for each in snapshot]
    assert len(uids) == len(set(uids))
    wanted = {each["metadata"]["uid"] for each in snapshot if each["kind"] in ("Event", "Pod")}
    assert {"Event", "Job", "Pod", "Node"} <= {each["kind"] for each in snapshot}
    second = start(processes, "second", "--simulate", "--load", processes.folder / "snapshot.log")
    with Rest(second) as rest:
        found = {each["metadata"]["uid"] for path in (EVENTS, pods) for each in rest.items(path)}
        assert wanted <= found
        assert len(rest.items(pods)) == 1
        again = rest.items("/apis/events.k8s.io/v1/namespaces/default/events")
        assert {each["metadata"]["uid"] for each in again} <= found


BATCH = "/apis/batch/v1/namespaces/default"
EVENTS = "/api/v1/namespaces/default/events"


def job(name: str) -> Obj:
    meta = {"annotations": {"kueuelib.dev/run-seconds": "0.1"}}
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"name": name}, "spec": {"template": {"metadata": meta, "spec": spec}}}


def dumped(processes: Processes, kubeconfig: Path, name: str) -> list[Obj]:
    processes.finish(name, "apiserver", "dump", "--kubeconfig", str(kubeconfig), seconds=300)
    return list(yaml.safe_load_all((processes.folder / f"{name}.log").read_text()))


MANIFESTS = """
apiVersion: test.dev/v1
kind: Box
metadata: {name: a, namespace: team}
spec: {size: 1}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: m, namespace: team}
  data: {at: "2024-01-01T00:00:00Z"}
- {apiVersion: v1, kind: Namespace, metadata: {name: team}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boxes.test.dev}
spec:
  group: test.dev
  scope: Namespaced
  names: {plural: boxes, kind: Box}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
"""
