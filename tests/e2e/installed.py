"""A cluster whose manager runs in pods, as far as its API shows: what `kueuelib doctor` says of it,
the commands that it prints, and every object.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import yaml
from real_plane import real_cluster
from rest import Obj, Rest
from warm import Processes

from kueuelib.api.meta import format_micro_time, key_of
from kueuelib.app.configuration_reading import load_configuration
from kueuelib.app.doctor.examining import DoctorReport, examine_twice
from kueuelib.app.doctor.finding import Finding
from kueuelib.app.doctor.reading import read
from kueuelib.app.running_configuration import running_configuration
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.connection import connect
from kueuelib.testing.processes import READY_SECONDS, LocalCluster, free_port

LATER = 400.0
"""Seconds after which everything that is given time has had it."""
LEASE_SECONDS = 600
SYSTEM = "kueue-system"
NAME = "kueue-controller-manager"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{NAME}"
CONFIG_MAP = f"/api/v1/namespaces/{SYSTEM}/configmaps/kueue-manager-config"
KEY = "controller_manager_config.yaml"
CONFIG = f"""\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
visibilityServer: {{}}
leaderElection: {{leaderElect: true, leaseDuration: {LEASE_SECONDS}s, retryPeriod: 1s}}
integrations: {{frameworks: [batch/job, pod]}}
"""
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
OTHERS = "/apis/apps/v1/namespaces/other/deployments"
SKEWED = """\
import sys, time
now = time.time
time.time = lambda: now() + {skew}
from kueuelib.cli import main
sys.argv[0] = "kueuelib"
main()
"""
_UNSTEADY = ("Event", "Lease", "SelfSubjectReview", "ComponentStatus", "EndpointSlice", "Endpoints")
"""Kinds whose objects come and go by themselves."""
_OF_SERVER = ("managedFields", "resourceVersion", "generation", "creationTimestamp")


@attrs.frozen
class LateClock:
    """A clock that is late.

    Attributes:
        seconds: by how much.
        haste: the part of a pause that is not waited for, from 0 to 1.
    """

    seconds: float
    haste: float

    def now(self) -> float:
        return SYSTEM_CLOCK.now() + self.seconds

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    async def sleep(self, seconds: float) -> None:
        await SYSTEM_CLOCK.sleep(seconds * (1 - self.haste))


@attrs.frozen
class Installed:
    """A server, and a manager that runs while its Deployment says so.

    Attributes:
        processes: `apiserver` and `manager`.
        cluster: where they are.
        rest: a client.
        addresses: where the manager listens, as keys of its configuration.
        outside: the configuration of a manager that runs outside of the cluster; None for pods.
        server: the arguments of `apiserver`.
    """

    processes: Processes
    cluster: LocalCluster
    rest: Rest
    _addresses: Obj = attrs.field(factory=dict)
    outside: Path | None = None
    server: tuple[str, ...] = ()
    _started: list[Obj] = attrs.field(factory=list)

    # ---- what doctor says

    def found(self, late: float = LATER, haste: float = 0.8) -> dict[tuple[str, str], Finding]:
        """What is found, by check and object.

        Args:
            late: how many seconds from now.
            haste: as of a clock, for somebody who asks until the answer is right.
        """
        clock = LateClock(late, haste)

        async def examined() -> DoctorReport:
            async with await connect(self.cluster.kubeconfig) as client:
                given = load_configuration(self.outside) if self.outside else None
                configuration = (await running_configuration(client, given)).configuration
                file = str(self.outside or "")
                return await examine_twice(
                    lambda: read(client, configuration, file=file, now=clock.now()), clock
                )

        findings = asyncio.run(examined()).findings
        return {(name, str(one.subject)): one for name, one in findings}

    # ---- what is stored

    def objects(self) -> dict[str, Obj]:
        """Every object without its status, by kind, namespace and name.

        Those that only follow from a Deployment are left out. Entries of webhooks are sorted: the
        manager and `install` write them in different orders.
        """
        found = {}
        for path, kind in self._collections():
            for obj in self.rest.items(path):
                if _is_of_deployment(obj):
                    continue
                meta = {key: one for key, one in obj["metadata"].items() if key not in _OF_SERVER}
                entries = sorted(obj.get("webhooks") or (), key=lambda one: str(one["name"]))
                parts = {"metadata": meta, "status": None, "webhooks": entries}
                found[f"{kind} {key_of(obj)}"] = {**obj, **parts}
        return found

    def _collections(self) -> Iterator[tuple[str, str]]:
        groups = self.rest.get("/apis")["groups"]
        roots = ["/api/v1", *(f"/apis/{one['preferredVersion']['groupVersion']}" for one in groups)]
        for root in roots:
            if "visibility" in root:
                continue
            for one in self.rest.get(root)["resources"]:
                if "list" in one["verbs"] and one["kind"] not in _UNSTEADY:
                    yield f"{root}/{one['name']}", one["kind"]

    # ---- what is done

    def run(self, command: str, editor: str = "true", refused: str = "") -> str:
        """Runs a command as somebody types it into a shell; what it printed.

        Args:
            command: as printed.
            editor: what `kubectl edit` starts.
            refused: what it says if it fails; empty if it does not.
        """
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        env = {
            **os.environ,
            "PATH": path,
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "KUBE_EDITOR": editor,
        }
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            env=env,
            cwd=self.processes.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        said = f"{command}\n{done.stdout}\n{done.stderr}"
        assert (done.returncode != 0) == bool(refused), said
        assert refused in done.stderr, said
        self.follow()
        return done.stdout

    def follow(self) -> None:
        """Does what the controller of Deployments would do to the managers."""
        if self.outside is None:
            self._follow_own()
        for other in self.rest.items(OTHERS):
            self._lead_elsewhere(bool(other["spec"]["replicas"]))

    def _follow_own(self) -> None:
        deployment = self.rest.get(DEPLOYMENT)
        wanted = [deployment["spec"]["template"]] if deployment["spec"]["replicas"] else []
        if wanted != self._started:
            if self._started:
                self.processes.stop("manager")
            self._started[:] = []
            if wanted:
                self.start()

    def _lead_elsewhere(self, leads: bool) -> None:
        """Does to the Lease what the manager in namespace `other` would do."""
        spec = {
            "holderIdentity": "theirs" if leads else "",
            "leaseDurationSeconds": 2 * LEASE_SECONDS,
            "renewTime": format_micro_time(time.time()),
        }
        path = "/apis/coordination.k8s.io/v1/namespaces/other/leases"
        name = self.rest.items(LEASES)[0]["metadata"]["name"]
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name},
            "spec": spec,
        }
        self.rest.apply(f"{path}/{name}", body, "theirs")

    def mount(self) -> None:
        """Writes the file in the ConfigMap to where the manager reads it."""
        content = yaml.safe_load(self.rest.get(CONFIG_MAP)["data"][KEY])
        self._file.write_text(yaml.safe_dump({**content, **self._addresses}))

    @property
    def _file(self) -> Path:
        return self.processes.folder / "manager.yaml"

    def start(self, skew: float = 0.0) -> None:
        """Starts the manager with the file in the ConfigMap.

        Args:
            skew: the seconds by which its clock is ahead.
        """
        self.mount()
        args = ["--kubeconfig", str(self.cluster.kubeconfig), "--config", str(self._file)]
        if skew:
            code = SKEWED.format(skew=skew)
            self.processes.start_program("manager", "-c", code, "manager", *args)
        else:
            self.processes.start("manager", "manager", *args)
        self.cluster.wait_for_manager()
        self._started[:] = [self.rest.get(DEPLOYMENT)["spec"]["template"]]

    def restart(self, skew: float = 0.0) -> None:
        """Starts the manager again."""
        self.processes.stop("manager")
        self.start(skew)

    def crash(self) -> None:
        """Starts the manager again with a file that it rejects."""
        self.processes.stop("manager")
        args = ["--kubeconfig", str(self.cluster.kubeconfig), "--config", str(self._file)]
        self.processes.start("manager", "manager", *args)
        assert self.processes.wait("manager", READY_SECONDS)


def _is_of_deployment(obj: Obj) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(one["kind"] in ("Deployment", "ReplicaSet") for one in owners)


@contextmanager
def installed(folder: Path, *options: str) -> Iterator[Installed]:
    """The server obeys roles, resolves our Services, and simulates two nodes.

    Args:
        folder: an empty one.
        options: further ones of the server.
    """
    visibility = free_port()
    with Processes(folder) as processes:
        cluster = LocalCluster(processes)
        ports = {"visibility-server": visibility, "kueue-webhook-service": cluster.webhook_port}
        services = [
            part
            for name, port in ports.items()
            for part in ("--service", f"{SYSTEM}/{name}=127.0.0.1:{port}")
        ]
        args = ["--kubeconfig", str(cluster.kubeconfig), "--simulate", "--authorization", "rbac"]
        server = ("apiserver", *args, *services, *(options or ("--port", "0")))
        processes.start("apiserver", *server)
        processes.wait_for_file(cluster.kubeconfig, "apiserver", READY_SECONDS)
        file = folder / "install.yaml"
        file.write_text(CONFIG)
        local = {"host": "127.0.0.1", "port": cluster.webhook_port}
        addresses = {
            "health": {"healthProbeBindAddress": f"127.0.0.1:{cluster.health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": local,
            "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": visibility},
        }
        with Rest(cluster.kubeconfig) as rest:
            one = Installed(processes, cluster, rest, addresses, server=server)
            processes.finish(
                "install",
                *("install", "--kubeconfig", str(cluster.kubeconfig), "--config", str(file)),
                seconds=READY_SECONDS,
            )
            one.start()
            yield one


@contextmanager
def outside(folder: Path) -> Iterator[Installed]:
    """A real control plane, and a manager outside of it."""
    with real_cluster(folder) as cluster, Rest(cluster.kubeconfig) as rest:
        file = folder / "config.yaml"
        addresses = {
            "health": {"healthProbeBindAddress": f"127.0.0.1:{cluster.health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": cluster.webhook_port},
        }
        content = {**yaml.safe_load(CONFIG), **addresses}
        del content["visibilityServer"]
        file.write_text(yaml.safe_dump(content))
        args = ["--kubeconfig", str(cluster.kubeconfig), "--config", str(file)]
        url = f"https://127.0.0.1:{cluster.webhook_port}"
        install = ("install", *args, "--webhook-url", url)
        cluster.processes.finish("install", *install, seconds=READY_SECONDS)
        cluster.processes.start("manager", "manager", *args)
        cluster.wait_for_manager()
        yield Installed(cluster.processes, cluster, rest, outside=file)
