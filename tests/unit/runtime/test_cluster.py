"""Several clusters in one manager, see also tests/e2e/test_clusters.py."""

from __future__ import annotations

import asyncio
import time

import pytest

from kueuelib import runtime
from kueuelib.errors import ConfigError
from kueuelib.runtime import DONE, Client, Cluster, Controller, ObjectKey, Result, Telemetry, kinds
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.transport import Transport
from kueuelib.testing import eventually, free_port


def nowhere() -> Client:
    return Client(Transport(Endpoint(f"http://127.0.0.1:{free_port()}")))


async def ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_cluster_that_is_away_holds_up_neither_caches_nor_controllers() -> None:
    looks: list[ObjectKey] = []

    class Looks:
        async def reconcile(self, key: ObjectKey) -> Result:
            looks.append(key)
            return DONE

    async with nowhere() as client:
        west = Cluster(client, "west", interval=0.05, patience=0.2)
        informer = west.cache.informer(kinds.CONFIG_MAPS)
        controller = Controller("looks", Looks()).for_(informer)
        ready, working = asyncio.Event(), asyncio.Event()
        tasks = (
            asyncio.create_task(west.run(ready.set)),
            asyncio.create_task(controller.run(working.set)),
        )
        async with asyncio.timeout(30):
            await ready.wait()
            await working.wait()
        controller.enqueue(ObjectKey("default", "one"))
        await eventually(lambda: looks)
        await eventually(lambda: "has not answered for" in west.problem())
        assert not informer.synced
        await ended(*tasks)


async def test_a_new_leader_reads_a_cluster_that_was_away_once_it_answers(
    kube_client: Client,
) -> None:
    await kube_client.create(kinds.CONFIG_MAPS, kinds.CONFIG_MAPS.new("a", "default"))
    west = Cluster(kube_client, "west", interval=0.05, patience=0.2)
    informer = west.cache.informer(kinds.CONFIG_MAPS, namespace="default")
    task = asyncio.create_task(west.run(lambda: None))
    await informer.wait_synced(30)
    west._contact.problem = lambda: "away"  # type: ignore[method-assign]
    began = time.monotonic()
    await west.catch_up()
    assert time.monotonic() - began < 5
    assert west.problem() == "away"
    del west._contact.problem  # type: ignore[method-assign]
    assert west.problem() == "it could not be read since this process became the leader"
    await eventually(lambda: west.problem() == "")
    await ended(task)


async def test_a_kind_that_cannot_be_listed_is_named(kube_client: Client) -> None:
    west = Cluster(kube_client, "west")
    west.cache.informer(runtime.Resource("example.com", "v1", "boxes", "Box", namespaced=True))
    task = asyncio.create_task(west.run(lambda: None))
    await eventually(lambda: "boxes have not been listed yet (" in west.problem())
    await west.catch_up()
    assert west.problem() == "it could not be read since this process became the leader"
    await ended(task)


async def test_the_own_cluster_must_answer_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kueuelib.runtime.cluster.SYNC_TIMEOUT", 0.3)
    async with nowhere() as client:
        home = Cluster(client)
        home.cache.informer(kinds.CONFIG_MAPS)
        with pytest.raises(ConfigError, match="configmaps: could not be listed in time"):
            await home.catch_up()
        with pytest.raises(ConfigError, match="configmaps: could not be listed in time"):
            await home.run(lambda: None)


async def test_an_informer_can_be_added_while_the_cluster_runs(kube_client: Client) -> None:
    west, ready = Cluster(kube_client, "west"), asyncio.Event()
    task = asyncio.create_task(west.run(ready.set))
    await ready.wait()
    informer = west.cache.informer(kinds.NAMESPACES)
    await informer.wait_synced(30)
    assert informer.cluster == "west"
    await ended(task)


async def test_metrics_say_which_cluster(kube_client: Client) -> None:
    telemetry = Telemetry()
    clusters = [Cluster(kube_client, name, telemetry=telemetry) for name in ("", "west")]
    for cluster in clusters:
        cluster.cache.informer(kinds.NAMESPACES)
    text = telemetry.render().decode()
    for name in ("", "west"):
        assert f'kueuelib_informer_objects{{cluster="{name}",resource="namespaces"}} 0.0' in text
        assert f'kueuelib_cluster_up{{cluster="{name}"}} 0.0' in text


def test_a_name_must_fit_into_a_path() -> None:
    with pytest.raises(ConfigError, match="cluster 'a/b': is not a valid name"):
        Cluster(nowhere(), "a/b")
