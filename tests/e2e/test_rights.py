"""The manager works with the rights that are installed, and each of them is used by something."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import orjson
import pytest
import yaml
from real_plane import Plane, lacking, real_plane
from rights import (
    NAMESPACE,
    WAIT,
    Right,
    World,
    configuration,
    needs_all,
    needs_rights_over_owners,
    token,
)
from warm import Processes, kueuelib

from kueuelib.api.meta import key_of
from kueuelib.app.configuration_reading import parse_configuration
from kueuelib.app.installation import Installation, install, resource_of_object
from kueuelib.app.wiring import lives_of
from kueuelib.controllers.manifests import SERVICE_ACCOUNT, manager_user
from kueuelib.embedded.access.attributes import Attributes, Decision
from kueuelib.embedded.access.rbac import Rbac
from kueuelib.embedded.admission.plugin import UserInfo
from kueuelib.embedded.server import ApiServer
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.runtime.manager import ProgramRun, run_until_stopped
from kueuelib.runtime.queries import PatchType
from kueuelib.testing.processes import free_port

OWN = "manager.kubeconfig"


@pytest.fixture
async def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    used: set[Right] = set()
    denied: set[Right] = set()
    decide = Rbac.authorize

    def authorize(self: Rbac, caller: UserInfo, wish: Attributes) -> Decision:
        found = decide(self, caller, wish)
        if caller.user.endswith(f":{SERVICE_ACCOUNT}") and wish.resource:
            right = (wish.group, wish.full_resource, wish.verb)
            (used if found.allowed else denied).add(right)
        return found

    monkeypatch.setattr(Rbac, "authorize", authorize)
    async with ApiServer(simulate=True, authorization="rbac") as server:
        admin = tmp_path / "admin"
        admin.write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(admin) as client:
            port = free_port()
            await install(client, Installation(NAMESPACE, f"https://127.0.0.1:{port}"), 60.0)
            own = tmp_path / "own"
            own.write_bytes(orjson.dumps(server.kubeconfig(await token(client))))
            yield World(client, lambda: (used, denied), lambda *given: inside(own, port, *given))


@contextlib.asynccontextmanager
async def inside(
    kubeconfig: Path, port: int, frameworks: list[str], metrics: int
) -> AsyncIterator[None]:
    """A manager in this process."""
    life = ProgramRun()
    parsed = parse_configuration(configuration(port, frameworks, metrics), "test")
    task = asyncio.create_task(
        run_until_stopped(life, lives_of(parsed, "test", kubeconfig), math.inf)
    )
    try:
        async with asyncio.timeout(WAIT):
            while life.manager is None or not life.manager.ready:
                assert not task.done(), task
                await asyncio.sleep(0.05)
        yield
    finally:
        life.stop()
        await task


class Audit:
    """What one user asked for, from the log of a real API server."""

    def __init__(self, path: Path, user: str) -> None:
        self._user = user
        self._path = path
        self._read = 0
        self._used: set[Right] = set()
        self._denied: set[Right] = set()

    def seen(self) -> tuple[set[Right], set[Right]]:
        """The rights that were used until now, and those that were missing."""
        with self._path.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):  # it is still being written
                    break
                self._read += len(line)
                self._take(json.loads(line))
        return self._used, self._denied

    def _take(self, event: dict) -> None:
        found = event.get("objectRef") or {}
        if event["user"]["username"] != self._user or "resource" not in found:
            return
        resource = "/".join(filter(None, (found["resource"], found.get("subresource"))))
        allowed = event["annotations"]["authorization.k8s.io/decision"] == "allow"
        right = (found.get("apiGroup", ""), resource, event["verb"])
        (self._used if allowed else self._denied).add(right)


async def apply(client: Client, text: str) -> None:
    """Writes manifests as `kubectl apply --server-side` does."""
    for obj in yaml.safe_load_all(text):
        await client.patch(
            resource_of_object(obj), key_of(obj), obj, PatchType.APPLY, field_manager="by-hand"
        )


@contextlib.asynccontextmanager
async def outside(
    folder: Path, kubeconfig: Path, port: int, frameworks: list[str], metrics: int
) -> AsyncIterator[None]:
    """A manager in a process of its own."""
    probes = free_port()
    config = folder / "config.yaml"
    content = configuration(port, frameworks, metrics, f"127.0.0.1:{probes}")
    config.write_text(yaml.safe_dump(content))
    with Processes(folder) as processes:
        args = ["--kubeconfig", str(kubeconfig), "--config", str(config)]
        processes.start("manager", "manager", *args)
        url = f"http://127.0.0.1:{probes}/readyz"
        await anyio.to_thread.run_sync(processes.wait_for_url, url, "manager")
        yield
        processes.check()


@contextlib.asynccontextmanager
async def installed(folder: Path, plane: Plane) -> AsyncIterator[World]:
    """What `install --print` printed, on a real control plane."""
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    printed = kueuelib("install", "--print", "--webhook-url", url, "--namespace", NAMESPACE)
    assert printed.returncode == 0, printed.stderr
    audit = Audit(plane.audit, manager_user(NAMESPACE))
    async with await connect(plane.kubeconfig) as client:
        await apply(client, printed.stdout)
        own = plane.kubeconfig_of(await token(client), OWN)
        yield World(client, audit.seen, lambda *given: outside(folder, own, port, *given))


async def test_the_manager_may_do_what_it_does_and_nothing_more(embedded: World) -> None:
    await needs_all(embedded)


@pytest.mark.slow
@pytest.mark.skipif(bool(lacking()), reason=lacking())
async def test_the_same_holds_on_a_real_control_plane(tmp_path: Path) -> None:
    """The printed manifests are applied, and the manager has a token of the ServiceAccount.

    A plug-in of the API server also asks for the rights over the owners of what is made.
    """
    plugin = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
    with real_plane(tmp_path, plugin) as plane:
        async with installed(tmp_path, plane) as world:
            await needs_all(world)
            async with await connect(plane.folder / OWN) as own:
                await needs_rights_over_owners(world, own)
