"""JupyterHub's KubeSpawner in a queue, without the hub; servers are simulated pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("kubespawner", reason="not installed; nox -s integrations installs it")

from jupyterhub.objects import Hub, Server
from jupyterhub.orm import Spawner as StoredSpawner
from kubernetes_asyncio.client.rest import ApiException
from kubernetes_asyncio.config import kube_config
from kubespawner import KubeSpawner
from team import Looks, Team
from traitlets.config import Config

from kueuelib.integrations.kubespawner import QueuedKubeSpawner


class User:
    """What a spawner asks of a user."""

    def __init__(self, name: str) -> None:
        self.name = self.escaped_name = name
        self.id = 1
        self.url = self.base_url = f"/user/{name}/"
        self.server = Server()


def spawner_of(
    team: Team, name: str, kind: type[KubeSpawner] = QueuedKubeSpawner, **settings: Any
) -> KubeSpawner:
    settings = {
        "namespace": team.namespace,
        "cpu_guarantee": 1,
        "start_timeout": 3,
        "delete_grace_period": 0,
        **(settings or {"local_queue": "team"}),
    }
    return kind(
        hub=Hub(),
        user=User(name),
        orm_spawner=StoredSpawner(name=""),
        config=Config({kind.__name__: settings}),
        api_token="token",
        oauth_client_id="client",
    )


async def test_a_server_waits_longer_than_its_start_timeout_with_a_reason(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", team.kubeconfig)
    spawner = spawner_of(team, "ada")
    seconds = 10 * spawner.start_timeout
    shown: list[str] = []

    async def show() -> None:
        async for event in spawner.progress():
            shown.append(event["message"])  # noqa: PERF401 - they are read meanwhile

    async with occupied(team):
        started = asyncio.wait_for(spawner.start(), timeout=spawner.start_timeout)
        starting, showing = asyncio.ensure_future(started), asyncio.create_task(show())
        looks = await asyncio.to_thread(
            Looks.at, team, "KubeSpawner", lambda: shown[-1] if shown else "", seconds
        )
        assert looks.lapses == 0, looks
    await starting
    await showing
    assert any(text.startswith("Waiting for quota: ") for text in shown), shown
    assert await spawner.poll() is None

    async with occupied(team), asyncio.timeout(30):
        while await spawner.poll() is None:
            await asyncio.sleep(0.2)
    await asyncio.wait_for(spawner.start(), timeout=60)  # the user starts it again
    await spawner.stop(now=True)


async def test_the_progress_page_of_an_unmodified_spawner_shows_the_reason(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", team.kubeconfig)
    queued = {"extra_labels": {"kueue.x-k8s.io/queue-name": "team"}, "start_timeout": 60}
    spawner = spawner_of(team, "bob", KubeSpawner, **queued)
    async with occupied(team):
        starting = asyncio.ensure_future(spawner.start())
        async with asyncio.timeout(30):
            async for event in spawner.progress():
                if event["message"].endswith(
                    "Waiting for quota: cpu on local: 1 more needed; place 1"
                ):
                    break
    await starting
    await spawner.stop(now=True)


async def test_a_pod_is_created_again_when_the_manager_answers(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", team.kubeconfig)
    create, refusals = KubeSpawner._make_create_pod_request, [500, 503]

    async def refused(self: KubeSpawner, pod: Any, timeout: float) -> Any:
        if not refusals:
            return await create(self, pod, timeout)
        error = ApiException(status=refusals.pop(), reason="Internal Server Error")
        error.body = '{"message": "failed calling webhook"}'
        raise error

    monkeypatch.setattr(KubeSpawner, "_make_create_pod_request", refused)
    spawner = spawner_of(team, "eve", local_queue="team", start_timeout=60)
    await spawner.start()
    assert spawner._texts[0] == "The pod is refused, trying again: failed calling webhook"
    assert spawner._texts[1].startswith(("Waiting", "Admitted", "Running"))
    await spawner.stop(now=True)


@asynccontextmanager
async def occupied(team: Team) -> AsyncIterator[None]:
    context = team.occupied()
    await asyncio.to_thread(context.__enter__)
    yield
    await asyncio.to_thread(context.__exit__, None, None, None)
