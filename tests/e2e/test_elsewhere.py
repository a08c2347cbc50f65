"""A manager outside of the cluster, with its visibility API, on a cluster with other manifests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from real_plane import lacking, real_plane
from rest import JOBS, Rest, eventually, job, queues
from warm import kueuelib

from kueuelib.controllers.manifests import api_service_names
from kueuelib.testing.processes import READY_SECONDS, Processes, free_port

API = "/apis/visibility.kueue.x-k8s.io/v1beta2"
OF_QUEUE = f"{API}/clusterqueues/team/pendingworkloads"
REGISTERED = "/apis/apiregistration.k8s.io/v1/apiservices"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
SOON = 30.0
"""Seconds; a look a minute would take longer than this in every second run."""
real = pytest.param(
    "real",
    marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())],
)


@pytest.fixture(params=["embedded", real])
def kubeconfig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Administrator's access to an API server that aggregates."""
    if request.param == "real":
        with real_plane(tmp_path) as plane:
            yield plane.kubeconfig
        return
    with Processes(tmp_path) as processes:
        file = tmp_path / "admin"
        args = ["--port", "0", "--kubeconfig", str(file), "--simulate", "--authorization", "rbac"]
        processes.start("apiserver", "apiserver", *args)
        processes.wait_for_file(file, "apiserver", READY_SECONDS)
        yield file


class Elsewhere:
    """A manager in a process on this machine."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self.folder = folder
        self.kubeconfig = kubeconfig
        self.port, self.probes, self.visibility = free_port(), free_port(), free_port()
        self.config = folder / "config.yaml"
        self.config.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                    "kind": "Configuration",
                    "namespace": "kueue-system",
                    "health": {"healthProbeBindAddress": f"127.0.0.1:{self.probes}"},
                    "metrics": {"bindAddress": "0"},
                    "webhook": {"host": "127.0.0.1", "port": self.port},
                    "leaderElection": {"leaderElect": False},
                    "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": self.visibility},
                }
            )
        )

    def install(self, *args: str) -> str:
        url = f"https://127.0.0.1:{self.port}"
        where = ["--kubeconfig", self.kubeconfig, "--webhook-url", url, "--config", self.config]
        done = kueuelib("install", *where, *args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def running(self) -> Iterator[None]:
        with Processes(self.folder) as processes:
            args = ["--kubeconfig", str(self.kubeconfig), "--config", str(self.config)]
            processes.start("manager", "manager", *args)
            processes.wait_for_url(f"http://127.0.0.1:{self.probes}/readyz", "manager")
            yield
            processes.check()


def listed(rest: Rest) -> list[str] | None:
    """The jobs that wait; None as long as the API is not available."""
    try:
        found = rest.get(OF_QUEUE)["items"]
    except httpx.HTTPStatusError:
        return None
    return [each["metadata"]["ownerReferences"][0]["name"] for each in found]


def seconds_until_listed(rest: Rest) -> float:
    began = time.monotonic()
    eventually(lambda: listed(rest) == ["waits"])
    return time.monotonic() - began


def test_what_install_writes_is_all_that_the_visibility_api_needs(
    kubeconfig: Path, tmp_path: Path
) -> None:
    elsewhere = Elsewhere(tmp_path, kubeconfig)
    elsewhere.install()
    with elsewhere.running(), Rest(kubeconfig) as rest:
        queues(rest, cpu=1)
        rest.create(JOBS, job("waits", seconds=60, pods=2))
        eventually(lambda: rest.items(f"{JOBS}"))
        assert seconds_until_listed(rest) < SOON


def test_what_install_prints_is_trusted_soon_although_the_manager_runs_before(
    kubeconfig: Path, tmp_path: Path
) -> None:
    elsewhere = Elsewhere(tmp_path, kubeconfig)
    elsewhere.install()
    with Rest(kubeconfig) as rest:
        for name in api_service_names():
            rest.delete(f"{REGISTERED}/{name}")
        with elsewhere.running():
            queues(rest, cpu=1)
            rest.create(JOBS, job("waits", seconds=60, pods=2))
            time.sleep(3.0)
            for obj in yaml.safe_load_all(elsewhere.install("--print")):
                if obj["kind"] == "APIService":
                    assert "caBundle" not in obj["spec"]
                    rest.create(REGISTERED, obj)
            assert seconds_until_listed(rest) < SOON


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH")
@pytest.mark.parametrize("options", [(), ("--server-side",)])
def test_manifests_that_kubectl_applied_are_not_in_the_way(
    kubeconfig: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    elsewhere = Elsewhere(tmp_path, kubeconfig)
    inside = [
        obj
        for obj in yaml.safe_load_all(kueuelib("install", "--print").stdout)
        if obj["kind"] not in ("Deployment", "NetworkPolicy", "PodDisruptionBudget")
    ]
    done = subprocess.run(
        ["kubectl", "apply", *options, "-f", "-"],
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": inside}),
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(tmp_path)},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    elsewhere.install()
    with Rest(kubeconfig) as rest:
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            (found,) = [
                each
                for each in rest.items(f"{HOOKS}/{kind}")
                if each["metadata"]["name"].startswith("kueue-")
            ]
            for hook in found["webhooks"]:
                assert hook["clientConfig"].keys() == {"url", "caBundle"}
