"""A real control plane: etcd, kube-apiserver, controller manager and scheduler as processes.

Only kubelets are missing. `Kubelet` plays them: pods that were put on a node run, and end as the
annotations of simulated pods say.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import attrs
import httpx
from rest import Obj, Rest
from warm import Processes

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))

from real_server import RealServer, assets, running

from kueuelib.testing.processes import LocalCluster, free_port, stop_process

CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
RUN, EXIT = "kueuelib.dev/run-seconds", "kueuelib.dev/exit-code"
LINGERS = "example.com/lingers"
"""The annotation of pods that do not heed the signal to end, as long as they have it."""
ROUND = 0.3
STOP_SECONDS = 30.0
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
NOT_HERE = "$KUBEBUILDER_ASSETS names no folder with"


def lacking(*programs: str) -> str:
    """Why there is no real control plane with these programs; empty when there is one."""
    folder = assets()
    if folder is None:
        return f"{NOT_HERE} etcd and kube-apiserver"
    missing = [name for name in (*CONTROLLERS, *programs) if not (folder / name).is_file()]
    return f"{NOT_HERE} {missing[0]}" if missing else ""


@attrs.frozen
class Plane:
    """A running control plane.

    Attributes:
        server: its API server.
        folder: files of its processes.
        kubeconfig: the administrator's.
    """

    server: RealServer
    folder: Path
    kubeconfig: Path

    def kubeconfig_of(self, token: str, name: str) -> Path:
        """A kubeconfig with a token."""
        return _kubeconfig(self.server, token, self.folder / name)

    @property
    def audit(self) -> Path:
        """What was asked of the API server, an event a line."""
        return self.folder / "audit.log"


def _kubeconfig(server: RealServer, token: str, path: Path) -> Path:
    ca = base64.b64encode(server.ca).decode()
    cluster = {"server": server.url, "certificate-authority-data": ca}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "user"}}],
        "current-context": "real",
    }
    path.write_text(json.dumps(content))
    return path


@contextmanager
def real_plane(folder: Path, *flags: str) -> Iterator[Plane]:
    """All of it, until the end of the context.

    Args:
        folder: an empty one.
        flags: further ones of kube-apiserver.
    """
    programs = assets()
    assert programs is not None
    work = folder / "plane"
    work.mkdir()
    (work / "audit.yaml").write_text(json.dumps(AUDIT))
    audit = (f"--audit-policy-file={work}/audit.yaml", f"--audit-log-path={work}/audit.log")
    with ExitStack() as stack:
        server = stack.enter_context(running(programs, work, [*audit, *flags]))
        kubeconfig = _kubeconfig(server, server.token, work / "admin.kubeconfig")
        common = [
            f"--kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ]
        more = {
            "kube-controller-manager": [
                "--controllers=*,-node-lifecycle-controller",
                f"--service-account-private-key-file={work}/accounts.key",
            ]
        }
        for name in CONTROLLERS:
            port = f"--secure-port={free_port()}"
            command = [str(programs / name), *common, port, *more.get(name, [])]
            stack.enter_context(_process(command, work / f"{name}.log"))
        rest = stack.enter_context(Rest(kubeconfig))
        for number in range(2):
            ready_node(rest, f"node-{number}")
        stack.enter_context(Kubelet(kubeconfig))
        yield Plane(server, work, kubeconfig)


@contextmanager
def real_api(folder: Path) -> Iterator[Path]:
    """The kubeconfig of etcd and kube-apiserver alone, where nothing reacts to what is written.

    Args:
        folder: an empty one.
    """
    programs = assets()
    assert programs is not None
    with running(programs, folder) as server:
        yield _kubeconfig(server, server.token, folder / "admin.kubeconfig")


@contextmanager
def real_cluster(folder: Path, **fields: Any) -> Iterator[LocalCluster]:
    """A real control plane for a manager outside of it; nothing is installed yet.

    Args:
        folder: an empty one.
        fields: of the cluster.
    """
    with real_plane(folder) as plane, Processes(folder) as processes:
        cluster = LocalCluster(processes, **fields)
        shutil.copy(plane.kubeconfig, cluster.kubeconfig)
        yield cluster


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield
        assert process.poll() is None, log.read_text()[-3000:]
    finally:
        stop_process(process)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ready_node(rest: Rest, name: str, labels: Obj | None = None, **capacity: str) -> None:
    """A node whose pods `Kubelet` runs; huge by default."""
    meta = {"name": name, "labels": labels or {}}
    rest.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta})
    room = {"cpu": "10000", "memory": "10Ti", "pods": "10000", **capacity}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played"}
    status = {
        "capacity": room,
        "allocatable": room,
        "conditions": [{**ready, "lastHeartbeatTime": _now(), "lastTransitionTime": _now()}],
    }
    rest.merge(f"/api/v1/nodes/{name}/status", {"status": status})
    rest.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})


class Kubelet:
    """A thread that does to the pods of all nodes what kubelets do."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._stopped = threading.Event()
        self._began: dict[str, float] = {}
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(STOP_SECONDS)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with Rest(self._kubeconfig) as rest:
                while not self._stopped.wait(ROUND):
                    for pod in rest.items("/api/v1/pods?fieldSelector=spec.nodeName!="):
                        self._look(rest, pod)
        except BaseException as error:  # noqa: BLE001 - the test raises it again
            self._failure = error

    def _look(self, rest: Rest, pod: Obj) -> None:
        meta, phase = pod["metadata"], pod["status"].get("phase", "Pending")
        notes = meta.get("annotations") or {}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        try:
            if "deletionTimestamp" in meta and phase == "Running" and LINGERS in notes:
                return
            if "deletionTimestamp" in meta and phase in ("Pending", "Running"):
                rest.merge(f"{path}/status", {"status": _ended(137)})
            elif "deletionTimestamp" in meta:
                rest.delete(path, gracePeriodSeconds="0")
            elif phase == "Pending":
                self._began[meta["uid"]] = time.monotonic()
                rest.merge(f"{path}/status", {"status": _running(meta["name"])})
            elif phase == "Running":
                lived = time.monotonic() - self._began.get(meta["uid"], 0.0)
                if RUN in notes and lived >= float(notes[RUN]):
                    rest.merge(f"{path}/status", {"status": _ended(int(notes.get(EXIT, 0)))})
        except httpx.HTTPStatusError as error:
            if error.response.status_code not in (404, 409):  # it has changed meanwhile
                raise


def _running(name: str) -> Obj:
    started = {"running": {"startedAt": _now()}}
    container = {"name": "c", "image": "i", "imageID": "i", "restartCount": 0, "ready": True}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": _now()}
    return {
        "phase": "Running",
        "startTime": _now(),
        "conditions": [ready, {**ready, "type": "ContainersReady"}],
        "containerStatuses": [{**container, "containerID": f"played://{name}", "state": started}],
    }


def _ended(code: int) -> Obj:
    over = {"exitCode": code, "startedAt": _now(), "finishedAt": _now(), "reason": "Ended"}
    container = {"name": "c", "image": "i", "imageID": "i", "restartCount": 0, "ready": False}
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": _now()}
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": [ready],
        "containerStatuses": [{**container, "state": {"terminated": over}}],
    }
