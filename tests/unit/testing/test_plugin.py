"""The pytest plug-in in a project of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from kueuelib.testing.background import BackgroundServer

SUITE = """
import json
import ssl
import urllib.request

import pytest
import yaml

from kueuelib.api.kinds import CONFIG_MAPS, JOBS, NAMESPACES
from kueuelib.api.meta import ObjectKey


def read(server, path):
    request = urllib.request.Request(
        server.url + path, headers={"Authorization": f"Bearer {server.token}"}
    )
    context = ssl.create_default_context(cadata=server.ca.decode())
    with urllib.request.urlopen(request, context=context) as answer:
        return json.load(answer)


def test_a_blocking_client(api_server):
    assert read(api_server, "/api/v1/namespaces/default")["metadata"]["name"] == "default"


def test_a_kubeconfig(api_server, kubeconfig):
    config = yaml.safe_load(kubeconfig.read_text())
    assert config["clusters"][0]["cluster"]["server"] == api_server.url


@pytest.mark.asyncio
@pytest.mark.parametrize("n", range(3))
async def test_a_client_of_a_new_server(kube_client, n):
    obj = {"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"name": "a", "namespace": "default"}}
    await kube_client.create(CONFIG_MAPS, obj)


@pytest.mark.asyncio
@pytest.mark.api_server(simulate=True, start_time=1_000_000_000)
async def test_a_clock_that_is_moved(api_server, kube_client):
    template = {
        "metadata": {"annotations": {"kueuelib.dev/run-seconds": "3600"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template},
           "metadata": {"name": "j", "namespace": "default"}}
    made = await kube_client.create(JOBS, job)
    assert made["metadata"]["creationTimestamp"] == "2001-09-09T01:46:40Z"
    api_server.settle()
    assert (await kube_client.get(JOBS, ObjectKey("default", "j")))["status"]["active"] == 1
    api_server.advance(3599)
    assert (await kube_client.get(JOBS, ObjectKey("default", "j")))["status"]["active"] == 1
    api_server.advance(2)
    done = await kube_client.get(JOBS, ObjectKey("default", "j"))
    assert done["status"]["completionTime"] >= "2001-09-09T02:46:40Z"


@pytest.mark.asyncio
@pytest.mark.api_server(authorization="rbac")
async def test_a_server_with_roles(api_server, kube_client):
    found = read(api_server, "/apis/rbac.authorization.k8s.io/v1/clusterroles")["items"]
    assert "view" in {each["metadata"]["name"] for each in found}
"""


def run_suite(folder: Path, suite: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_strange.py").write_text(suite)
    declared = any(
        each.value == "kueuelib.testing.plugin" for each in entry_points(group="pytest11")
    )
    plugin = () if declared else ("-p", "kueuelib.testing.plugin")
    options = ("-o", "asyncio_default_fixture_loop_scope=function")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *options,
        *plugin,
        "--strict-markers",
    ]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", "test_strange.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_fixtures_serve_a_suite_of_strangers(tmp_path: Path) -> None:
    done = run_suite(tmp_path, SUITE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


WRONG = """
import pytest


@pytest.mark.api_server("rbac")
def test_a_value_without_a_name(api_server):
    pass


@pytest.mark.api_server(simulated=True)
def test_a_misspelt_option(api_server):
    pass
"""


def test_a_marker_that_cannot_be_read_says_what_is_known(tmp_path: Path) -> None:
    done = run_suite(tmp_path, WRONG)
    assert done.returncode == 1
    assert "'rbac' has no name; give options by name: simulate=, authorization=" in done.stdout
    assert "there is no option 'simulated' (did you mean 'simulate'?)" in done.stdout


def test_two_hundred_servers_live_in_one_run() -> None:
    seen = set()
    for _ in range(200):
        with BackgroundServer() as server:
            seen.add(server.token)
    assert len(seen) == 200


def test_a_server_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(Exception, match="authorization 'maybe'"),
        BackgroundServer(authorization="maybe"),
    ):
        pass


def test_the_clock_of_the_machine_cannot_be_moved() -> None:
    with BackgroundServer() as server, pytest.raises(ValueError, match="start_time"):
        server.advance(1)
