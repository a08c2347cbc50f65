"""True histories: what real processes commit to an API server on the clock of this machine."""

from __future__ import annotations

import asyncio
import contextvars
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
import httpx
import pytest

from kueuelib.embedded.http.resources import ResourceHandler
from kueuelib.embedded.registry.kinds import Kind
from kueuelib.embedded.server import ApiServer
from kueuelib.embedded.storage import StorageEvent
from kueuelib.errors import ApiError
from kueuelib.testing.background import BackgroundServer
from kueuelib.testing.processes import LocalCluster, Processes
from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.users import Act, Scenario, perform

sys.path.insert(0, str(Path(__file__).parents[2] / "e2e"))

from rest import Rest

T = TypeVar("T")

ACTOR: contextvars.ContextVar[str] = contextvars.ContextVar("actor", default="server")


class Recorder:
    """A listener that keeps every commit."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []

    def __call__(self, kind: Kind, change: StorageEvent) -> None:
        before = None if change.before is None else change.before.obj()
        after = None if change.removed else change.after.obj()
        key = change.after.key
        resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        self.commits.append(
            Commit(
                at=time.time(),
                revision=change.revision,
                actor=ACTOR.get(),
                resource=resource,
                namespace=key.namespace,
                name=key.name,
                old=before,
                new=after,
            )
        )

    def write(self, path: Path) -> None:
        with path.open("w") as file:
            for commit in self.commits:
                file.write(json.dumps(attrs.asdict(commit)) + "\n")


def read(path: Path) -> list[Commit]:
    return [Commit(**json.loads(line)) for line in path.read_text().splitlines()]


@contextmanager
def recorded(
    folder: Path, patch: pytest.MonkeyPatch, **settings: Any
) -> Iterator[tuple[BackgroundServer, LocalCluster, Recorder]]:
    """A server in this process, a manager in its own, and everything that is committed."""
    serve = ResourceHandler.serve

    async def named(self: ResourceHandler, request: Any, route: Any, caller: Any) -> Any:
        ACTOR.set(caller.user)
        return await serve(self, request, route, caller)

    patch.setattr(ResourceHandler, "serve", named)
    recorder = Recorder()

    async def listen(server: ApiServer) -> None:
        server.service.commits.listen(recorder)

    with BackgroundServer(simulate=True) as server, Processes(folder) as processes:
        server.call(listen)
        cluster = LocalCluster(processes, **settings)
        server.write_kubeconfig(cluster.kubeconfig)
        cluster.install()
        token = server.add_user("manager-1", "system:masters")
        server.write_kubeconfig(cluster.kubeconfig, token)
        cluster.start_manager()
        cluster.wait_for_manager()
        token = server.add_user("user", "system:masters")
        server.write_kubeconfig(folder / "user-kubeconfig", token)
        yield server, cluster, recorder


class Refused(ApiError):
    """What the API server answered."""


class HttpApi:
    """Raw calls of a user over HTTP; resources are named `plural.group`."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def _path(self, resource: str, namespace: str, name: str = "", sub: str = "") -> str:
        plural, _, group = resource.partition(".")
        version = "v1beta2" if group == "kueue.x-k8s.io" else "v1"
        parts = ["/apis", group, version] if group else ["/api", version]
        parts += ["namespaces", namespace] if namespace else []
        return "/".join([*parts, plural, *([name] if name else []), *([sub] if sub else [])])

    async def _call(self, verb: Callable[..., T], *args: Any) -> T:
        try:
            return await asyncio.to_thread(verb, *args)
        except httpx.HTTPStatusError as error:
            raise Refused(str(error)) from error

    async def get(self, resource: str, namespace: str, name: str) -> Obj:
        return await self._call(self._rest.get, self._path(resource, namespace, name))

    async def list(self, resource: str, namespace: str = "") -> list[Obj]:
        return await self._call(self._rest.items, self._path(resource, namespace))

    async def create(self, resource: str, obj: Mapping[str, Any]) -> Obj:
        namespace = obj["metadata"].get("namespace", "")
        return await self._call(self._rest.create, self._path(resource, namespace), dict(obj))

    async def patch(
        self, resource: str, namespace: str, name: str, body: Any, subresource: str = ""
    ) -> Obj:
        path = self._path(resource, namespace, name, subresource)
        return await self._call(self._rest.merge, path, body)

    async def delete(self, resource: str, namespace: str, name: str) -> None:
        await self._call(self._rest.delete, self._path(resource, namespace, name))


def faster(act: Act, factor: float) -> Act:
    """The act earlier, and the pods that it makes shorter."""
    text = json.dumps(act.body)
    shorter = re.sub(
        r'(run-seconds": ")([0-9.]+)', lambda m: f"{m[1]}{float(m[2]) / factor:.2f}", text
    )
    return attrs.evolve(act, at=act.at / factor, body=json.loads(shorter))


async def play(scenario: Scenario, api: HttpApi, factor: float) -> list[str]:
    """Plays a scenario `factor` times as fast as it is written, to the calm at its end."""
    outcomes: list[str] = []

    async def one(act: Act) -> None:
        await asyncio.sleep(act.at)
        outcomes.append(f"{act.label}: {await perform(act, api)}")

    async def now(acts: Iterable[Act]) -> None:
        for act in acts:
            outcomes.append(f"{act.label}: {await perform(act, api)}")  # noqa: PERF401 - in order

    await now(scenario.setup)
    await asyncio.gather(*(one(faster(act, factor)) for act in scenario.acts))
    await now(scenario.calm)
    return outcomes
