"""One manager, two clusters: the second one starts late, is killed, and comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from kueuelib.runtime import (
    DONE,
    Client,
    Cluster,
    Controller,
    Group,
    Manager,
    ObjectKey,
    ProbeServer,
    Result,
    Telemetry,
    connect,
    kinds,
    wait_for_server,
)
from kueuelib.testing import eventually, free_port
from kueuelib.testing.background import BackgroundServer
from kueuelib.testing.processes import Processes

LABEL = {"labels": {"copied": "yes"}}


class Copier:
    """Copies ConfigMaps of the other cluster into this one."""

    def __init__(self, here: Cluster, there: Cluster) -> None:
        self.here, self.there = here, there
        self.home = here.cache.informer(kinds.CONFIG_MAPS, namespace="default")
        self.away = there.cache.informer(
            kinds.CONFIG_MAPS, namespace="default", label_selector="copied=yes"
        )
        self.looks: list[ObjectKey] = []

    async def reconcile(self, key: ObjectKey) -> Result:
        self.looks.append(key)
        wanted, present = self.away.store.get(key), self.home.store.get(key)
        if wanted is not None and present is None:
            made = kinds.CONFIG_MAPS.new(key.name, key.namespace, data=wanted.get("data") or {})
            self.home.learn(await self.here.client.create(kinds.CONFIG_MAPS, made))
        return DONE


def config_map(name: str, **meta: Any) -> Any:
    made = kinds.CONFIG_MAPS.new(name, "default", data={"from": "west"})
    made["metadata"] |= meta
    return made


def value(telemetry: Telemetry, name: str) -> float:
    lines = telemetry.render().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.slow
async def test_the_loss_of_a_cluster_is_isolated_and_passes(
    api_server: BackgroundServer, kube_client: Client, tmp_path: Path
) -> None:
    telemetry, port = Telemetry(), free_port()
    options = ("--port", str(port), "--kubeconfig", "west", "--data-dir", str(tmp_path / "data"))
    kubeconfig = tmp_path / "west"
    with Processes(tmp_path) as processes:
        # A first life writes the kubeconfig; the manager starts while the cluster is away.
        processes.start("first", "apiserver", *options)
        await eventually(kubeconfig.exists, within=100)
        async with await connect(str(kubeconfig)) as away:
            await wait_for_server(away, 100)
            processes.kill("first")
            here = Cluster(kube_client, telemetry=telemetry)
            west = Cluster(away, "west", interval=0.1, patience=0.5, telemetry=telemetry)
            copier = Copier(here, west)
            controller = Controller("copier", copier, telemetry=telemetry)
            controller.for_(copier.home).watches(copier.away, lambda delta: [delta.key])
            probes = ProbeServer("127.0.0.1", 0)
            manager = Manager()
            probes.add_ready_check("manager", lambda: "" if manager.ready else "starting")
            probes.add_ready_check("west", west.problem, shown=True, required=False)
            manager.add(Group.SERVERS, probes)
            manager.add(Group.CACHES, here)
            manager.add(Group.CACHES, west)
            manager.add(Group.ELECTED, controller)

            program = asyncio.create_task(manager.run())
            async with httpx.AsyncClient() as http:
                try:
                    await eventually(lambda: manager.ready, within=60)
                    url = f"http://127.0.0.1:{probes.port}/readyz"

                    async def shown(path: str, text: str) -> bool:
                        return text in (await http.get(url + path)).text

                    async def works_at_home(name: str) -> None:
                        await kube_client.create(kinds.CONFIG_MAPS, config_map(name))
                        await eventually(lambda: ObjectKey("default", name) in copier.looks)

                    async def copied(name: str) -> None:
                        key = ObjectKey("default", name)
                        await eventually(
                            lambda: kube_client.get(kinds.CONFIG_MAPS, key), within=120
                        )

                    # Away from the start: the program runs, and says which cluster is missing.
                    await works_at_home("one")
                    await eventually(lambda: shown("?verbose", "[!]west not required: the API"))
                    assert (await http.get(url)).status_code == 200
                    assert (await http.get(f"{url}/west")).status_code == 500
                    assert value(telemetry, 'kueuelib_cluster_up{cluster="west"}') == 0
                    assert value(telemetry, 'kueuelib_cluster_up{cluster=""}') == 1

                    processes.start("second", "apiserver", *options)
                    await wait_for_server(away, 100)
                    await away.create(kinds.CONFIG_MAPS, config_map("a", **LABEL))
                    await copied("a")
                    await eventually(lambda: west.problem() == "")
                    assert (await http.get(f"{url}/west")).status_code == 200
                    count = 'kueuelib_informer_objects{cluster="west",resource="configmaps"}'
                    assert value(telemetry, count) == 1

                    processes.kill("second")
                    await eventually(lambda: shown("/west", "has not answered for"))
                    await works_at_home("two")
                    assert ObjectKey("default", "a") in copier.away.store
                    assert not program.done()

                    processes.start("third", "apiserver", *options)
                    await wait_for_server(away, 100)
                    await away.create(kinds.CONFIG_MAPS, config_map("b", **LABEL))
                    await copied("b")
                    await away.delete(kinds.CONFIG_MAPS, ObjectKey("default", "a"))
                    await eventually(lambda: ObjectKey("default", "a") not in copier.away.store)
                    await eventually(lambda: west.problem() == "")
                finally:
                    manager.stop()
                    await program
