"""The programs of docs/controller-parts.md, run as a reader runs them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from rest import Rest, eventually
from warm import Processes

from kueuelib.testing.processes import LocalCluster, free_port

EXAMPLES = Path(__file__).parents[2] / "examples/01_minimal"
NAMESPACES = "/api/v1/namespaces"
BLUE = f"{NAMESPACES}/blue/configmaps/team-defaults"


@contextmanager
def program(name: str, *args: object) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs until the block ends, and then ends well."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, args)]
    process = subprocess.Popen(command)
    try:
        yield process
        assert process.poll() is None, f"{name} ended by itself"
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalCluster]:
    with Processes(tmp_path) as processes:
        found = LocalCluster(processes)
        found.start_server()
        yield found


@pytest.fixture
def api(server: LocalCluster) -> Iterator[Rest]:
    with Rest(server.kubeconfig) as found:
        yield found


def _namespace(name: str, **labels: str) -> dict:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def test_the_minimal_operator_makes_and_repairs_what_it_owns(
    server: LocalCluster, api: Rest
) -> None:
    with program("team_defaults.py", server.kubeconfig):
        api.create(NAMESPACES, _namespace("blue", team="blue"))
        api.create(NAMESPACES, _namespace("plain"))
        first = eventually(lambda: api.get(BLUE))
        assert first["data"] == {"team": "blue"}

        api.merge(BLUE, {"data": {"team": "wrong"}})
        eventually(lambda: api.get(BLUE)["data"] == {"team": "blue"})

        api.delete(BLUE)
        eventually(lambda: api.get(BLUE)["metadata"]["uid"] != first["metadata"]["uid"])

        names = [each["metadata"]["namespace"] for each in api.items("/api/v1/configmaps")]
        assert "plain" not in names

        api.delete(f"{NAMESPACES}/blue")
        eventually(lambda: "blue" not in {_name(each) for each in api.items(NAMESPACES)})


def _name(obj: dict) -> str:
    return obj["metadata"]["name"]


def test_the_webhook_beside_it_is_trusted_and_asked(server: LocalCluster, api: Rest) -> None:
    api.create(NAMESPACES, _namespace("blue", team="blue"))
    with ExitStack() as stack:
        stack.enter_context(program("guarded.py", server.kubeconfig, free_port()))

        def team() -> str:
            return str(api.get(f"{NAMESPACES}/blue")["metadata"]["labels"]["team"])

        def refused() -> str:
            other = "red" if team() == "blue" else "blue"
            try:
                api.merge(f"{NAMESPACES}/blue", {"metadata": {"labels": {"team": other}}})
            except httpx.HTTPStatusError as error:
                told = str(error.response.json()["message"])
                return told if "denied" in told else ""
            return ""

        assert "a team keeps its namespace" in eventually(refused)
        kept = team()
        api.merge(f"{NAMESPACES}/blue", {"metadata": {"labels": {"other": "label"}}})
    assert team() == kept
