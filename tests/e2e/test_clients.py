"""Every client in the table of docs/clients.md does its work against the embedded server.

`$CLIENTS_PYTHON` names an interpreter that has the Python clients, if it is not this one;
`$NODE_PATH` names the folder with the packages of node.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kueuelib.embedded.server import ApiServer

SCRIPTS = Path(__file__).with_name("clients")
PAGE = Path(__file__).parents[2] / "docs/clients.md"
SECONDS = 240.0
PACKAGES = {
    "kubernetes_python.py": "kubernetes",
    "kubernetes_asyncio_client.py": "kubernetes_asyncio",
    "kr8s_client.py": "kr8s",
    "lightkube_client.py": "lightkube",
    "pykube_client.py": "pykube",
    "kopf_client.py": "kopf",
    "kubeflow_client.py": "kubeflow.trainer",
    "client_node.mjs": "@kubernetes/client-node",
    "kubectl.sh": "kubectl",
}
PYTHON = os.environ.get("CLIENTS_PYTHON", sys.executable)


def _command(script: str) -> tuple[list[str], list[str]]:
    """How a script is run, and what succeeds where its client is installed."""
    package, path = PACKAGES[script], str(SCRIPTS / script)
    if script.endswith(".py"):
        return [PYTHON, path], [PYTHON, "-c", f"import {package}"]
    if script.endswith(".mjs"):
        return ["node", path], ["node", "-e", f"require.resolve('{package}')"]
    return ["sh", path], [package, "version", "--client"]


def _is_installed(probe: list[str]) -> bool:
    if shutil.which(probe[0]) is None:
        return False
    return subprocess.run(probe, capture_output=True, timeout=SECONDS, check=False).returncode == 0


def test_every_row_has_its_script_and_every_script_its_row():
    rows = set(re.findall(r"\((?:\.\./)tests/e2e/clients/([\w.]+)\)", PAGE.read_text()))
    assert rows == set(PACKAGES) == {each.name for each in SCRIPTS.iterdir() if each.is_file()}


@pytest.mark.parametrize("script", PACKAGES)
async def test_a_client_does_its_work(script: str, tmp_path: Path):
    command, probe = _command(script)
    if not await asyncio.to_thread(_is_installed, probe):
        pytest.skip(f"{PACKAGES[script]} is not installed")
    path = tmp_path / "kubeconfig"
    async with ApiServer(simulate=True, authorization="rbac") as server:
        path.write_text(yaml.safe_dump(server.kubeconfig()))
        env = {**os.environ, "KUBECONFIG": str(path), "HOME": str(tmp_path)}
        if command[0] != sys.executable:
            env.pop("PYTHONPATH", None)
        process = await asyncio.create_subprocess_exec(
            *(*command, str(path)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=env,
        )
        try:
            async with asyncio.timeout(SECONDS):
                out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, out.decode(errors="replace")[-4000:]
