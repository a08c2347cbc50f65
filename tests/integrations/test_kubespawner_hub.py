"""A hub with a proxy; its servers are processes of a node."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("kubespawner", reason="not installed; nox -s integrations installs it")

import httpx
from team import Team

from kueuelib.testing.processes import free_port, stop_process

PROXY = "configurable-http-proxy"
CONFIG = Path(__file__).with_name("jupyterhub_config.py")
SECONDS = 120


@pytest.fixture
def hub(real_team: Team, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of a running hub, with the rights of an administrator."""
    proxy = shutil.which(PROXY, path=f"{sys.prefix}/node_modules/.bin") or shutil.which(PROXY)
    if proxy is None:
        pytest.skip(f"npm has not installed {PROXY}")
    ports, token = [free_port() for _ in range(4)], secrets.token_hex()
    env = {
        **os.environ,
        "KUBECONFIG": real_team.kubeconfig,
        "TEAM": real_team.namespace,
        "HUB_PORTS": ",".join(map(str, ports)),
        "HUB_PROXY": proxy,
        "HUB_TOKEN": token,
    }
    command = [sys.executable, "-m", "jupyterhub", "-f", str(CONFIG)]
    with (
        subprocess.Popen(command, env=env, cwd=tmp_path) as process,
        httpx.Client(
            base_url=f"http://127.0.0.1:{ports[0]}",
            headers={"Authorization": f"token {token}"},
            timeout=30,
            follow_redirects=True,
        ) as client,
    ):
        try:
            until(lambda: answers(client, "/hub/api"))
            yield client
        finally:
            stop_process(process)


def answers(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).is_success
    except httpx.TransportError:
        return False


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_a_server_answers_through_the_proxy_and_starts_again_after_a_preemption(
    hub: httpx.Client, real_team: Team
) -> None:
    user = "/hub/api/users/ada"
    hub.post(user).raise_for_status()

    def starts_after_a_wait() -> None:
        hub.post(f"{user}/server").raise_for_status()
        with hub.stream("GET", f"{user}/server/progress") as events:
            for line in events.iter_lines():
                if "Waiting for quota: cpu on processes" in line:
                    break
            else:
                pytest.fail("the progress page has no reason")
        time.sleep(6)  # longer than its start timeout

    def states() -> list[bool]:
        servers = hub.get(user).raise_for_status().json()["servers"]
        return [server["ready"] for server in servers.values()]

    with real_team.occupied():
        starts_after_a_wait()
    until(lambda: states() == [True])
    status = hub.get("/user/ada/api/status").raise_for_status().json()
    assert status["kernels"] == 0

    with real_team.occupied():
        until(lambda: states() == [])
        starts_after_a_wait()
    until(lambda: states() == [True])
    hub.delete(f"{user}/server").raise_for_status()


def test_a_second_user_waits_with_a_reason_until_the_first_stops(hub: httpx.Client) -> None:
    first, second = (f"/hub/api/users/{name}" for name in ("ada", "bob"))
    for user in (first, second):
        hub.post(user).raise_for_status()
    hub.post(f"{first}/server").raise_for_status()
    until(lambda: answers(hub, "/user/ada/api/status"))
    hub.post(f"{second}/server").raise_for_status()
    shown, stopped = [], False
    with hub.stream("GET", f"{second}/server/progress") as events:
        for line in events.iter_lines():
            shown.append(line)
            if not stopped and "Waiting for quota: cpu on processes" in line:
                time.sleep(6)  # longer than its start timeout
                hub.delete(f"{first}/server").raise_for_status()
                stopped = True
    assert any('"ready": true' in line for line in shown), shown
    until(lambda: answers(hub, "/user/bob/api/status"))
    hub.delete(f"{second}/server").raise_for_status()
