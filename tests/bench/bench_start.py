"""How long managers take to take over a full cluster, and what that costs.

`START_OBJECTS=20000` plays the large case. `START_MANAGER` names managers, separated by `;`:
`kueuelib@TREE` is that of another checkout, and where `$KUBEBUILDER_ASSETS` names etcd and
kube-apiserver, it may be the Go manager, whose manifests are in the same folder:

    START_MANAGER='kueuelib; go=.../kueue-manager --config={config} --kubeconfig={kubeconfig}'

They start by turns, `START_TURNS` times each, on one server. `START_SERVER` is the kubeconfig of
one that an earlier run has filled. `START_PROFILE=1` also prints where the processor time of
kueuelib goes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import attrs
import httpx
import pytest
import yaml
from baseline import profile
from baseline.calls import successful_writes
from baseline.managers import OWN, ManagerSpec, Options, answers, managing, parse
from baseline.servers import REAL, Server, default_server, serving
from baseline.usage import Usage
from figures import show
from full_cluster import LONGEST, cluster, embedded, store
from samples import workload

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

import go_manager
from rest import JOBS, WORKLOADS, Obj, Rest, eventually, is_true, job

from kueuelib.app.configuration import InternalCertManagement
from kueuelib.runtime.certificates import Certificates
from kueuelib.runtime.webhook.trust import from_secret, with_bundle
from kueuelib.testing.processes import free_port

COUNT = int(os.environ.get("START_OBJECTS", "500"))
"""Pods, Jobs and admitted Workloads: so many of each."""
MANAGERS = [parse(each.strip()) for each in os.environ.get("START_MANAGER", OWN).split(";")]
TURNS = int(os.environ.get("START_TURNS", "1"))
FILLED = os.environ.get("START_SERVER", "")
PROFILE = "START_PROFILE" in os.environ
PAUSE = 0.2
"""Seconds between two looks at what a manager has reached; each costs it a little."""
REST = 0.05
"""Of a core, that a manager uses at most when it has looked at everything."""
SECRET = f"/api/v1/namespaces/kueue-system/secrets/{InternalCertManagement().webhook_secret_name}"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workloads.kueue.x-k8s.io"
NAMES = map("start-{:x}-{}".format, itertools.repeat(int(time.time())), itertools.count())


@attrs.frozen
class Start:
    """What one start took; times are seconds since the process began."""

    probe: float
    """Until `/readyz` said so."""
    workload: float
    """Until a new Workload was admitted."""
    job: float
    """Until a new Job was started."""
    working: Usage = attrs.field(repr=lambda usage: f"{usage.cpu} s, {usage.peak:.0f} MB")
    """Until all of that."""
    resting: Usage = attrs.field(repr=lambda usage: f"{usage.cpu} s, {usage.peak:.0f} MB")
    """Until there was nothing more to do."""
    writes: Counter[str]


ROWS: dict[str, tuple[str, Callable[[Start], float]]] = {
    "/readyz answers 200": ("s", lambda start: start.probe),
    "a new Workload is admitted": ("s", lambda start: start.workload),
    "a new Job is started": ("s", lambda start: start.job),
    "processor until then": ("s", lambda start: start.working.cpu),
    "memory until then": ("MB", lambda start: start.working.peak),
    "processor until at rest": ("s", lambda start: start.resting.cpu),
    "memory until at rest": ("MB", lambda start: start.resting.peak),
}


@pytest.mark.timeout(LONGEST)
def test_the_start_in_a_full_cluster(tmp_path: Path) -> None:
    """The Workloads are those that the Jobs ask for, so there is nothing to write for them."""
    starts: dict[str, list[Start]] = {spec.label: [] for spec in MANAGERS}
    with _full(tmp_path) as (server, options):
        for turn in range(0 if FILLED else -1, TURNS):
            for spec in MANAGERS:
                start = _start(spec, server, options)
                if turn >= 0 or len(MANAGERS) == TURNS == 1:
                    starts[spec.label].append(start)
                sys.stdout.write(f"{spec.label}: {start}\n")
                assert "Stopped" not in (server.folder / "manager.log").read_text()
    _show(starts)
    if PROFILE:
        sys.stdout.write(profile.report(tmp_path / "profile.json", 40))


def _show(starts: dict[str, list[Start]]) -> None:
    first = next(iter(starts.values()))
    rows = []
    for name, (unit, value) in ROWS.items():
        figures = [median(map(value, each)) for each in starts.values()]
        texts = [f"{figure:.1f} {unit}" for figure in figures]
        texts += [f"{median(map(value, first)) / figure:.2f}" for figure in figures[1:]]
        rows.append((name, " | ".join(texts)))
    rows += [(f"writes of {label}", str(dict(each[-1].writes))) for label, each in starts.items()]
    labels = ", ".join(starts)
    show(f"start: {COUNT:,} Pods, {COUNT:,} Jobs, {COUNT:,} Workloads stored; {labels}", rows)


# ---- the cluster


@contextlib.contextmanager
def _full(folder: Path) -> Iterator[tuple[Server, Options]]:
    """A server that holds the cluster, and what managers have to know of it."""
    with contextlib.ExitStack() as stack:
        if FILLED:
            server = stack.enter_context(serving(FILLED, folder))
            server = attrs.evolve(server, folder=folder)
        elif default_server() == REAL:
            server = stack.enter_context(serving(REAL, folder))
            fill(server)
        else:
            server = stack.enter_context(embedded(folder, cluster(COUNT)))
            yield server, Options(profile=PROFILE, health=free_port(), wait=False)
            return
        with Rest(server.kubeconfig) as rest:
            conversion = rest.get(DEFINITION)["spec"]["conversion"]
        webhook = urlsplit(conversion["webhook"]["clientConfig"]["url"]).port
        assert webhook
        options = Options(profile=PROFILE, health=free_port(), wait=False, install=False)
        yield server, attrs.evolve(options, webhook=webhook, certificates=folder / "certificates")


def fill(server: Server) -> None:
    """Install both managers in a real server, and store the cluster there.

    The definitions are those of the Go manager, which waits for its own form of them; kueuelib
    takes either.
    """
    port = free_port()
    with Rest(server.kubeconfig) as rest:
        own = [obj for obj in _own_manifests(port) if "Definition" not in obj["kind"]]
        go_manager.install(rest, own)
        go_manager.install(rest, go_manager.manifests(port, go_manager.certificates()))
        eventually(lambda: rest.get(WORKLOADS))
    store(server.etcd, cluster(COUNT))


def _own_manifests(port: int) -> list[Obj]:
    url = f"https://127.0.0.1:{port}"
    printing = [sys.executable, "-m", "kueuelib", "install", "--print", "--webhook-url", url]
    text = subprocess.run(printing, check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(text))


def _hooks(spec: ManagerSpec, found: Certificates, port: int) -> Iterator[Obj]:
    """The configurations of a manager's webhooks, as it has them once it has run."""
    objects = _own_manifests(port) if spec.own else go_manager.manifests(port, found)
    return (with_bundle(obj, found.ca_cert) for obj in objects if obj["kind"] in go_manager.HOOKS)


def _certificates(rest: Rest) -> Certificates:
    found = from_secret(rest.get(SECRET))
    assert found is not None
    return found


# ---- one start


def _start(spec: ManagerSpec, server: Server, options: Options) -> Start:
    with Rest(server.kubeconfig) as rest:
        if not options.install:
            found = _certificates(rest)
            go_manager.install(rest, _hooks(spec, found, options.webhook))
            go_manager.mount(found, server.folder / "certificates")
        before = successful_writes(rest.text("/metrics"))
        with managing(spec, server, options) as process, ThreadPoolExecutor(3) as pool:

            def age(reached: Callable[[], object]) -> float:
                eventually(lambda: process.poll() is not None or reached(), pause=PAUSE)
                assert process.poll() is None, (server.folder / "manager.log").read_text()[-3000:]
                return _age(process.pid)

            usage = Usage(process.pid)
            name = next(NAMES)
            url = f"http://127.0.0.1:{options.health}/readyz"
            parts = [
                pool.submit(age, lambda: answers(url)),
                pool.submit(age, _Admitted(rest, name)),
                pool.submit(age, _Started(rest, name)),
            ]
            times = [part.result() for part in parts]
            usage.sample()
            working = attrs.evolve(usage)
            last = -1.0
            while usage.cpu - last > REST:
                last = usage.cpu
                time.sleep(1.0)
                usage.sample()
            writes = successful_writes(rest.text("/metrics")) - before
            _remove(rest, name)
    return Start(*times, working, usage, writes)


class _Admitted:
    """Whether a new Workload is admitted; it is created as soon as the webhooks let it in."""

    def __init__(self, rest: Rest, name: str) -> None:
        self._rest, self._path = rest, f"{WORKLOADS}/{name}"
        obj = workload(0)
        self._obj = {**obj, "metadata": {"name": name, "namespace": "default"}}
        del self._obj["status"]
        self._created = False

    def __call__(self) -> bool:
        if not self._created:
            self._rest.create(WORKLOADS, self._obj)
            self._created = True
        return is_true(self._rest.get(self._path), "Admitted")


class _Started:
    """Whether a new Job is started; its webhook has suspended it."""

    def __init__(self, rest: Rest, name: str) -> None:
        self._rest, self._path = rest, f"{JOBS}/{name}"
        self._obj = job(name, seconds=1.0)
        self._created = False

    def __call__(self) -> bool:
        if not self._created:
            created = self._rest.create(JOBS, self._obj)
            assert created["spec"]["suspend"]
            self._created = True
        return not self._rest.get(self._path)["spec"]["suspend"]


def _remove(rest: Rest, name: str) -> None:
    """The new objects go, while the manager is there that lets them go."""
    uid = rest.get(f"{JOBS}/{name}")["metadata"]["uid"]
    owned = rest.items(f"{WORKLOADS}?labelSelector=kueue.x-k8s.io/job-uid={uid}")
    rest.delete(f"{JOBS}/{name}")
    names: list[Any] = [name, *(each["metadata"]["name"] for each in owned)]
    for each in names:
        with contextlib.suppress(httpx.HTTPStatusError):  # it may be gone with its Job
            rest.delete(f"{WORKLOADS}/{each}")
    for each in names:
        eventually(lambda path=f"{WORKLOADS}/{each}": _is_gone(rest, path))


def _is_gone(rest: Rest, path: str) -> bool:
    try:
        rest.get(path)
    except httpx.HTTPStatusError as error:
        return error.response.status_code == 404
    return False


def _age(pid: int) -> float:
    """Seconds since a process began."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")
