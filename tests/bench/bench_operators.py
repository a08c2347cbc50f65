"""The same operator with kueuelib, kopf and controller-runtime: lines, start, rate, memory, calls.

`OPERATORS_GO=FILE` names the program built from `operators/greeter.go`; without it, or without
kopf, that contestant is left out. `OPERATORS_OBJECTS=1000 OPERATORS_RUNS=3` are those of
`docs/comparison.md`. The server is `kueuelib apiserver`, with counted calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import attrs
import pytest
from baseline.calls import WRITES
from baseline.servers import EMBEDDED, Server, install_definitions, serving
from figures import cpu_seconds, resident, show
from operators.greeter_kueuelib import Greeting, Spec

from kueuelib.api.meta import Obj, ObjectKey, is_true
from kueuelib.runtime import Client, ObjectMeta, PatchType, kinds
from kueuelib.runtime.operator.reconciled import resource_of

HERE = Path(__file__).parent / "operators"
COUNT = int(os.environ.get("OPERATORS_OBJECTS", "200"))
RUNS = int(os.environ.get("OPERATORS_RUNS", "1"))
GO = os.environ.get("OPERATORS_GO", "")
GREETINGS = resource_of(Greeting)
LONGEST = 300.0
WRITERS = 16
REST = 0.03
"""Of a core, that an operator uses at most when its work is done."""


@attrs.frozen
class Contestant:
    """One of the three programs: its source, and how to run it with `$KUBECONFIG`."""

    source: str
    command: Sequence[str]

    @property
    def lines(self) -> int:
        """Lines of its source, blank ones and comments included."""
        return len((HERE / self.source).read_text().splitlines())


@attrs.frozen
class Result:
    """What one run showed.

    Attributes:
        start: seconds from the start of the program until the one Greeting is done.
        rate: Greetings a second after that time, when it starts beside all.
        cpu: seconds of the processor for all, with the start.
        idle: megabytes (2**20) at rest, with one Greeting.
        full: megabytes (2**20) at rest, with all.
        reads: single objects that it read from the server, for each Greeting.
        writes: for each Greeting.
    """

    start: float
    rate: float
    cpu: float
    idle: float
    full: float
    reads: float
    writes: float


def contestants() -> dict[str, Contestant]:
    """Those that this machine can run."""
    own, kopf = HERE / "greeter_kueuelib.py", HERE / "greeter_kopf.py"
    python = [sys.executable, "-m"]
    options = ["--kubeconfig", "kubeconfig", "--no-leader-elect"]
    runners = {"kueuelib": Contestant(own.name, [*python, "kueuelib", "run", str(own), *options])}
    if importlib.util.find_spec("kopf"):
        command = [*python, "kopf", "run", "-q", "--standalone", "-A", str(kopf)]
        runners["kopf"] = Contestant(kopf.name, command)
    if GO:
        runners["controller-runtime"] = Contestant("greeter.go", [str(Path(GO).resolve())])
    return runners


@contextlib.contextmanager
def program(contestant: Contestant, server: Server) -> Iterator[int]:
    """Run a program until the end of the context; its id."""
    with (server.folder / "operator.log").open("ab") as log:
        process = subprocess.Popen(
            contestant.command,
            cwd=server.folder,
            env={**os.environ, "KUBECONFIG": str(server.kubeconfig)},
            stdout=log,
            stderr=log,
        )
    try:
        yield process.pid
        assert process.poll() is None, (server.folder / "operator.log").read_text()
    finally:
        process.terminate()
        process.wait(30)


async def done(client: Client) -> int:
    """How many Greetings have their ConfigMap, its text, its owner, and a status that says so."""
    configs = {each["metadata"]["name"]: each async for each in client.list_all(kinds.CONFIG_MAPS)}
    greetings = [each async for each in client.list_all(GREETINGS)]
    return sum(_is_done(each, configs.get(each["metadata"]["name"])) for each in greetings)


def _is_done(greeting: Obj, config: Obj | None) -> bool:
    meta = greeting["metadata"]
    return (
        config is not None
        and config["data"] == {"text": greeting["spec"]["text"]}
        and [each["uid"] for each in config["metadata"]["ownerReferences"]] == [meta["uid"]]
        and greeting.get("status", {}).get("observedGeneration") == meta["generation"]
        and is_true(greeting, "Ready")
    )


async def until(client: Client, least: int, pause: float) -> None:
    """Wait until so many Greetings are done."""
    async with asyncio.timeout(LONGEST):
        while await done(client) < least:
            await asyncio.sleep(pause)


async def at_rest(pid: int) -> None:
    """Wait until a program uses no more processor time."""
    async with asyncio.timeout(LONGEST):
        before = -1.0
        while (now := cpu_seconds(pid)) - before > REST:
            before = now
            await asyncio.sleep(1.0)


async def create(client: Client, names: Sequence[str]) -> None:
    """Create Greetings, a few at a time."""
    left = list(names)

    async def write() -> None:
        while left:
            meta = ObjectMeta(name=left.pop(), namespace="default")
            await client.of(Greeting).create(Greeting(metadata=meta, spec=Spec("hello")))

    await asyncio.gather(*(write() for _ in range(WRITERS)))


@contextlib.asynccontextmanager
async def prepared(folder: Path) -> AsyncIterator[tuple[Server, Client]]:
    """A server with the kind, and a client of it."""
    source = str(HERE / "greeter_kueuelib.py")
    made = subprocess.run(
        [sys.executable, "-m", "kueuelib", "manifests", source], check=True, capture_output=True
    )
    definitions = folder / "definitions"
    definitions.mkdir()
    (definitions / "greeter.yaml").write_bytes(made.stdout)
    with serving(EMBEDDED, folder) as server:
        async with server.client() as counted:
            await install_definitions(counted, definitions)
            yield server, counted.client


async def play(contestant: Contestant, folder: Path) -> Result:
    """Start a program beside one Greeting, then again beside all, and disturb it."""
    async with prepared(folder) as (server, client):
        await create(client, ["first"])
        began = time.monotonic()
        with program(contestant, server) as pid:
            await until(client, 1, 0.02)
            start = time.monotonic() - began
            await at_rest(pid)
            idle = resident(pid)
        await create(client, [f"greeting-{number}" for number in range(COUNT - 1)])
        async with server.client() as counted:
            reader = server.reader(counted)
            before = await reader()
            began = time.monotonic()
            with program(contestant, server) as pid:
                await until(client, COUNT, 0.2)
                rate = (COUNT - 1) / (time.monotonic() - began - start)
                await at_rest(pid)
                cpu, full, calls = cpu_seconds(pid), resident(pid), await reader() - before
                await disturb(client)
    own = {what: count for what, count in calls.items() if what.partition(" ")[0] in WRITES}
    reads = sum(count for what, count in calls.items() if what.startswith("get "))
    return Result(start, rate, cpu, idle, full, reads / COUNT, sum(own.values()) / COUNT)


async def disturb(client: Client) -> None:
    """Delete one ConfigMap and change another Greeting: both have to be put right."""
    lost, changed = ObjectKey("default", "greeting-0"), ObjectKey("default", "greeting-1")
    before = await client.get(kinds.CONFIG_MAPS, lost)
    await client.delete(kinds.CONFIG_MAPS, lost)
    await client.patch(GREETINGS, changed, {"spec": {"text": "new"}}, PatchType.MERGE)
    await until(client, COUNT, 0.1)
    after = await client.get(kinds.CONFIG_MAPS, lost)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


@pytest.mark.timeout(3000)
async def test_the_same_operator(tmp_path: Path) -> None:
    """Contestants take turns, each with a fresh server; the figures are medians."""
    playing = contestants()
    results: dict[str, list[Result]] = {name: [] for name in playing}
    for number in range(RUNS):
        for name, contestant in playing.items():
            folder = tmp_path / f"{name}-{number}"
            folder.mkdir()
            results[name].append(await play(contestant, folder))
    for name, runs in results.items():
        rows = [("lines", f"{playing[name].lines}")]
        for field in attrs.fields(Result):
            values = sorted(getattr(each, field.name) for each in runs)
            middle = statistics.median(values)
            rows.append((field.name, f"{middle:.2f} ({values[0]:.2f} to {values[-1]:.2f})"))
        show(f"{name}: {COUNT:,} Greetings, medians of {RUNS} (range)", rows)
