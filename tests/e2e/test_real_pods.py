"""The demo and a test of a user whose pods run as processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from unprivileged import dropped

TEST = """
import asyncio
import sys

import pytest
from kueuelib.runtime import ObjectKey, kinds

POD = kinds.PODS.new("hello", "default", spec={
    "restartPolicy": "Never",
    "nodeSelector": {"kueuelib.dev/local": "true"},
    "tolerations": [{"key": "kueuelib.dev/local", "operator": "Exists"}],
    "containers": [{"name": "c", "image": "worker", "command": ["python", "-c", "print(6 * 7)"]}],
})


async def phase_of(client):
    pod = await client.get(kinds.PODS, ObjectKey("default", "hello"))
    return pod["status"].get("phase")


@pytest.mark.asyncio
@pytest.mark.api_server(simulate=True)
@pytest.mark.local_node(images={"worker": sys.prefix})
async def test_a_worker(local_node, kube_client):
    await kube_client.create(kinds.PODS, POD)
    while (phase := await phase_of(kube_client)) != "Succeeded":
        assert phase != "Failed"
        await asyncio.sleep(0.1)
    assert await kube_client.request("GET", kinds.PODS.path("default", "hello", "log")) == 42


@pytest.mark.local_node
def test_without_images(local_node): ...
"""


def test_pods_of_the_demo_run_and_are_preempted(tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    demo = [*dropped(), sys.executable, "-m", "kueuelib", "demo", "--run"]
    done = subprocess.run(
        [*demo, "--picture", str(picture)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "array: Evicted (Preempted)" in done.stdout
    assert "= 4,203 primes" in done.stdout
    assert "4,203" in picture.read_text().replace("&#160;", " ")


def test_a_test_has_a_node_that_runs_its_pods(tmp_path: Path) -> None:
    (tmp_path / "test_worker.py").write_text(TEST)
    command = [*dropped(), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert "1 passed, 1 error" in done.stdout, done.stdout
    assert "write @pytest.mark.local_node(images=" in done.stdout
