"""The tools in a cluster whose webhooks accept connections and never answer.

Some objects are stored in v1beta1, as an older Kueue has left them. The manager is stuck, so the
API server waits for it as long as for any webhook: 30 seconds for a conversion.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from real_plane import real_api
from rest import PATIENCE
from test_unconverted import NEW, OLD, QUOTA, REAL, Place, filled

from kueuelib.api import kinds
from kueuelib.api.meta import ObjectKey
from kueuelib.app.configuration import Configuration
from kueuelib.app.doctor.reading import read
from kueuelib.app.installation import Installation, install
from kueuelib.errors import ApiError, TransportError
from kueuelib.runtime.certificates import Certificates, load, server_context
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.runtime.webhook.trust import from_secret
from kueuelib.testing.background import BackgroundServer

pytestmark = pytest.mark.slow
NAMESPACE = "kueue-system"
SECRET = ObjectKey(NAMESPACE, "kueue-webhook-server-cert")
ASKED = 2.0
"""Seconds after which the API server is known to wait for a webhook."""
CALLS = 36.0
"""Seconds for calls of webhooks that each take twelve, on a busy machine."""
SOON = 60.0
"""Seconds for a command that waits ten of them for the server, on a busy machine."""


READS = (("explain", "workload/large"), ("pending", "-A"), ("report",))
"""Commands that show what a cluster has."""


@attrs.frozen
class Hung(Place):
    """A server whose webhooks hang, with what is installed there."""

    installation: Installation


@contextmanager
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@contextmanager
def silent(listener: socket.socket, certificates: Certificates) -> Iterator[None]:
    """A server that is trusted, reads requests, and answers none."""
    context = server_context()
    load(context, certificates)
    kept: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):  # the test is over
            while True:
                connection, _ = listener.accept()
                kept.append(connection)  # in case that there is no handshake
                connection.settimeout(5)
                with suppress(ssl.SSLError, OSError):
                    kept.append(context.wrap_socket(connection, server_side=True))

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield
    finally:
        for each in kept:
            each.close()


@asynccontextmanager
async def hung(
    server_kind: str, tmp_path: Path, fill: Callable[[Place], Awaitable[None]]
) -> AsyncIterator[Hung]:
    with ExitStack() as stack:
        if server_kind == "real":
            kubeconfig = stack.enter_context(real_api(tmp_path))
        else:
            server = stack.enter_context(BackgroundServer())
            kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        listener = stack.enter_context(listening())
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        async with await connect(kubeconfig) as client:
            found = Hung(client, kubeconfig, Installation(NAMESPACE, url))
            await fill(found)
            await install(client, found.installation, PATIENCE)
            certificates = from_secret(await client.get(kinds.SECRETS, SECRET))
            assert certificates is not None
            stack.enter_context(silent(listener, certificates))
            await _until_it_hangs(client)
            yield found


@pytest.fixture(params=["embedded", REAL])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hung]:
    async with hung(request.param, tmp_path, filled) as found:
        yield found


async def new_objects(place: Place) -> None:
    """A queue and its flavor in the newest version, so that no list needs a conversion."""
    await place.define(NEW)
    await place.create(kinds.RESOURCE_FLAVORS, "f", {})
    await place.create(kinds.CLUSTER_QUEUES, "a", {"resourceGroups": [QUOTA]})


async def _until_it_hangs(client: Client) -> None:
    for version in 100 * (NEW, OLD):
        path = f"/apis/kueue.x-k8s.io/{version}/clusterqueues/a"
        try:
            await client.request("GET", path, timeout=ASKED)
        except TransportError as error:
            if error.timed_out:
                return
        except ApiError:
            await asyncio.sleep(0.05)
    raise AssertionError("the API server does not call the webhook")


def run(place: Place, *args: str) -> subprocess.CompletedProcess[str]:
    """A command that ends soon after the time that it gives the server."""
    return together(place, args)[0]


def together(place: Place, *commands: Sequence[str]) -> list[subprocess.CompletedProcess[str]]:
    """Commands at the same time, each of which ends soon."""
    began = time.monotonic()
    done = place.together(*commands)
    seconds = time.monotonic() - began
    print(f"{' | '.join(map(' '.join, commands))}: after {seconds:.1f} s")
    assert seconds < SOON, (commands, seconds)
    return done


def dumped(text: str) -> dict[tuple[str, str], str]:
    """The API versions of the dumped objects, by kind and name."""
    objects = yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {(one["kind"], one["metadata"]["name"]): one["apiVersion"] for one in objects}


async def test_every_command_reads_what_is_there(place: Hung) -> None:
    told = "clusterqueues, localqueues, workloads were read as they are stored: conversion webhook"
    *shown, served, doctor, before, dump = together(
        place,
        *READS,
        ("report", "--serve"),
        ("doctor", "-o", "json"),
        ("doctor", "--before-migration", "-o", "json"),
        ("apiserver", "dump"),
    )
    for done in shown:
        assert done.returncode == 0, done.stderr
        assert "large" in done.stdout
        assert told in done.stdout
        assert "seems to hang: no answer in time; run kueuelib doctor" in done.stdout
    assert served.returncode == 1
    assert "cannot follow all objects" in served.stderr
    assert "leave out --serve" in served.stderr

    assert doctor.returncode == 4, doctor.stderr
    report = json.loads(doctor.stdout)
    assert not {"ClusterQueue", "LocalQueue", "Workload"} & set(report["notSeen"])
    assert "never-fits" in {one["check"] for one in report["findings"]}
    unreachable = [one for one in report["findings"] if one["check"] == "webhook-unreachable"]
    assert all("kueuelib manager --config" in one["fix"] for one in unreachable)
    admission, conversion = (one["problem"] for one in unreachable)
    assert "does not reach the admission webhook" in admission
    assert "context deadline exceeded" in admission
    assert "does not reach the conversion webhook" in conversion
    assert before.returncode == 0, before.stderr
    assert "object-unreadable" in json.loads(before.stdout)["checked"]

    assert dump.returncode == 0, dump.stderr
    found = dumped(dump.stdout)
    new = f"kueue.x-k8s.io/{NEW}"
    queues = [("ClusterQueue", name) for name in "abcd"]
    for one in (*queues, ("LocalQueue", "main"), ("Workload", "large")):
        assert found[one] == new


async def test_doctor_waits_for_all_webhooks_at_once(
    place: Hung, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung: list[tuple[float, float, str]] = []
    request = Client.request

    async def noting(self: Client, method: str, path: str, **rest: Any) -> Any:
        began = time.monotonic()
        try:
            return await request(self, method, path, **rest)
        except TransportError:
            hung.append((began, time.monotonic(), method))
            raise
        except ApiError as error:
            if error.code >= 500:
                hung.append((began, time.monotonic(), method))
            raise

    monkeypatch.setattr(Client, "request", noting)
    snapshot = await read(place.client, Configuration())
    assert [one.what for one in snapshot.calls] == ["admission", "conversion"]
    assert all(one.error for one in snapshot.calls)
    ((began, ended, _),) = [one for one in hung if one[2] == "POST"]
    conversions = [one for one in hung if one[2] == "GET"]
    assert len(conversions) >= 3
    assert all(one[0] < ended and began < one[1] for one in conversions)


@pytest.mark.parametrize("server_kind", ["embedded", REAL])
async def test_doctor_asks_for_every_conversion_at_once(server_kind: str, tmp_path: Path) -> None:
    """Nothing stored needs a conversion, and admission webhooks hang, too: 43 seconds before."""
    async with hung(server_kind, tmp_path, new_objects) as place:
        began = time.monotonic()
        snapshot = await read(place.client, Configuration())
        seconds = time.monotonic() - began
    print(f"doctor reads for {seconds:.1f} s")
    assert [one.what for one in snapshot.calls] == ["admission", "conversion"]
    assert all(one.error for one in snapshot.calls)
    assert seconds < CALLS


async def test_what_no_served_version_can_show_is_named(place: Hung) -> None:
    await install(place.client, attrs.evolve(place.installation, versions=(NEW,)), PATIENCE)
    *shown, doctor, dump, refused = together(
        place,
        *READS,
        ("doctor", "-o", "json"),
        ("apiserver", "dump", "--server-timeout", "10"),
        ("uninstall", "--server-timeout", "10"),
    )
    for done in shown:
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert "cannot be read: conversion webhook for" in line
        assert "seems to hang" in line
        assert line.endswith("run kueuelib doctor: it names the command that helps")
    assert doctor.returncode == 4, doctor.stderr
    report = json.loads(doctor.stdout)
    assert {"ClusterQueue", "LocalQueue", "Workload"} <= set(report["notSeen"])
    assert "ResourceFlavor" not in report["notSeen"]
    assert "webhook-unreachable" in {one["check"] for one in report["findings"]}

    assert dump.returncode == 1
    (line,) = dump.stderr.splitlines()
    lost = [f"{each}.kueue.x-k8s.io" for each in ("clusterqueues", "localqueues", "workloads")]
    assert f"not all {', '.join(lost)} could be read: " in line
    assert {("ResourceFlavor", "f"), ("Namespace", "default")} <= set(dumped(dump.stdout))

    assert refused.returncode == 2
    assert "workloads: cannot be read, so that some may hold quota" in refused.stderr
    done = run(place, "uninstall", "--force")
    assert done.returncode == 0, done.stderr
    assert not (await place.client.list(kinds.CRDS)).items


async def test_everything_can_be_removed(place: Hung) -> None:
    done = run(place, "uninstall")
    assert done.returncode == 0, done.stderr
    assert "4 ClusterQueues deleted" in done.stdout
    assert "1 Workload deleted" in done.stdout
    assert not (await place.client.list(kinds.CRDS)).items
