"""From the Go manager to ours and back, with everything in flight, on a real control plane.

`$KUBEBUILDER_ASSETS` also has the Go manager's binary, and the manifests of its release.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import go_manager
import pytest
import yaml
from place import QUEUE, Place, name_of, phase, uid_of
from real_plane import Plane, lacking, real_plane
from rest import KUEUE, Obj, Rest, eventually, is_true
from warm import Processes, kueuelib

from kueuelib.testing.processes import free_port

SHARE = float(os.environ.get("MIGRATION_SHARE", "1"))
MISSING = lacking(go_manager.PROGRAM, go_manager.MANIFESTS)
STILL = 15.0
"""Seconds in which a manager that wants to change something would do so."""
CONFIG: dict[str, Any] = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "namespace": go_manager.NAMESPACE,
    "metrics": {"bindAddress": "0"},
    "leaderElection": {"leaderElect": False},
}
FRAMEWORKS = ("batch/job", "pod")


class Managers:
    """The two managers, which serve their webhooks at the same address, one at a time."""

    def __init__(
        self,
        plane: Plane,
        rest: Rest,
        folder: Path,
        frameworks: tuple[str, ...] = FRAMEWORKS,
        gates: tuple[str, ...] = (),
    ) -> None:
        self._plane = plane
        self.rest = rest
        self._folder = folder
        self._gates = gates
        self._config = {**CONFIG, "integrations": {"frameworks": list(frameworks)}}
        self._port = free_port()
        self._found = go_manager.certificates()
        self._certificates = folder / "certificates"
        go_manager.mount(self._found, self._certificates)

    # ---- theirs

    def go_objects(self) -> list[Obj]:
        return go_manager.manifests(self._port, self._found)

    def install_go(self) -> None:
        go_manager.install(self.rest, self.go_objects())

    @contextlib.contextmanager
    def go(self) -> Iterator[None]:
        """The Go manager."""
        probes = free_port()
        content = {
            **self._config,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{probes}"},
            "webhook": {
                "host": "127.0.0.1",
                "port": self._port,
                "certDir": str(self._certificates),
            },
        }
        config = self._folder / "go.yaml"
        config.write_text(yaml.safe_dump(content))
        opened = [f"{gate}=true" for gate in self._gates]
        gates = "--feature-gates=" + ",".join(["VisibilityOnDemand=false", *opened])
        kubeconfig = self._plane.kubeconfig
        with go_manager.started(go_manager.PROGRAM, config, kubeconfig, probes, gates):
            yield

    # ---- ours

    def install_ours(self, *args: str) -> None:
        url = f"https://127.0.0.1:{self._port}"
        self.run("install", "--webhook-url", url, *args)

    def run(self, command: str, *args: str, codes: tuple[int, ...] = (0,)) -> str:
        """The output of one of our commands."""
        done = kueuelib(command, *args, "--kubeconfig", self._plane.kubeconfig)
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """Our manager."""
        probes = free_port()
        content = {
            **self._config,
            "featureGates": dict.fromkeys(self._gates, True),
            "health": {"healthProbeBindAddress": f"127.0.0.1:{probes}"},
            "webhook": {"host": "127.0.0.1", "port": self._port},
        }
        config = self._folder / "ours.yaml"
        config.write_text(yaml.safe_dump(content))
        with Processes(self._folder) as processes:
            args = ["--kubeconfig", str(self._plane.kubeconfig), "--config", str(config)]
            processes.start("manager", "manager", *args)
            processes.wait_for_url(f"http://127.0.0.1:{probes}/readyz", "manager")
            yield
            processes.check()


# ---- what is in flight


class Load:
    """Jobs that run and wait, groups of which a part has ended, Workloads in a check."""

    def __init__(self, rest: Rest, share: float = SHARE) -> None:
        self.place = Place(rest)
        self.rest = rest
        self.running, self.pending, self.groups, self.checked = (
            int(each * share) for each in (200, 200, 20, 50)
        )
        self.place.queue(self.running, "main")
        self.place.queue(3 * self.groups, "groups")
        self.place.check("gate")
        self.place.queue(self.checked, "slow", checks=("gate",))

    def create(self) -> None:
        place = self.place
        with ThreadPoolExecutor(8) as pool:
            run = [pool.submit(place.job, f"run-{one}", "main") for one in range(self.running)]
            [each.result() for each in run]
            eventually(lambda: self.count("Admitted", "job-run-") == self.running)
            more = [pool.submit(place.job, f"wait-{one}", "main") for one in range(self.pending)]
            more += [pool.submit(place.job, f"slow-{one}", "slow") for one in range(self.checked)]
            more += [pool.submit(self._group, f"g{one}") for one in range(self.groups)]
            [each.result() for each in more]
        eventually(lambda: self.count("QuotaReserved", "job-slow-") == self.checked)
        eventually(lambda: self.count("Admitted", "g") == self.groups)
        wanted = self.running + 3 * self.groups
        eventually(lambda: self._phases().count("Running") == wanted)
        for one in range(self.groups):
            self.finish(f"g{one}-0")
        eventually(lambda: self._phases().count("Succeeded") == self.groups)
        workloads = self.running + self.pending + self.groups + self.checked
        eventually(lambda: len(self.rest.items(place.workloads)) == workloads)

    def _group(self, name: str) -> None:
        self.place.group(name, 3, queue="groups")

    def _phases(self) -> list[str]:
        return [phase(pod) for pod in self.rest.items(self.place.pods)]

    def finish(self, pod: str) -> None:
        found = self.rest.get(f"{self.place.pods}/{pod}")
        self.place.finish({"kind": "Pod", **found})

    def count(self, type_: str, prefix: str) -> int:
        return sum(
            name_of(wl).startswith(prefix) and is_true(wl, type_) and not is_true(wl, "Finished")
            for wl in self.rest.items(self.place.workloads)
        )

    def state(self) -> Obj:
        """What a change of managers must leave as it is."""
        place = self.place
        workloads = self.rest.items(place.workloads)
        queues = self.rest.items(f"{KUEUE}/clusterqueues")
        return {
            "pods": {
                name_of(pod): (uid_of(pod), phase(pod), pod["metadata"].get("deletionTimestamp"))
                for pod in self.rest.items(place.pods)
            },
            "jobs": {
                name_of(job): (uid_of(job), job["spec"]["suspend"], job["status"].get("startTime"))
                for job in self.rest.items(place.jobs)
            },
            "workloads": {
                name_of(wl): (
                    uid_of(wl),
                    wl.get("status", {}).get("admission"),
                    [is_true(wl, one) for one in ("QuotaReserved", "Admitted", "Evicted")],
                    [one["state"] for one in wl.get("status", {}).get("admissionChecks") or ()],
                    wl["status"].get("requeueState"),
                )
                for wl in workloads
            },
            "usage": {
                name_of(queue): [
                    queue["status"].get(each)
                    for each in (
                        *("flavorsUsage", "flavorsReservation", "pendingWorkloads"),
                        *("admittedWorkloads", "reservingWorkloads"),
                    )
                ]
                for queue in queues
            },
        }

    def goes_on(self, number: int) -> None:
        """A Job ends and another starts, a group ends, and a check lets a Job run."""
        job = {"kind": "Job", **self.rest.get(f"{self.place.jobs}/run-{number}")}
        before = self.count("Admitted", "job-wait-")
        self.place.finish(job)
        eventually(lambda: is_true(self.place.get(job), "Complete"))
        eventually(lambda: self.count("Admitted", "job-wait-") == before + 1)
        for one in (1, 2):
            self.finish(f"g{number}-{one}")
        pod = {"kind": "Pod", **self.rest.get(f"{self.place.pods}/g{number}-1")}
        self.place.finished(pod)
        slow = {"kind": "Job", **self.rest.get(f"{self.place.jobs}/slow-{number}")}
        self.place.answer(self.place.workload(slow), "gate", "Ready")
        self.place.runs(slow)


def assert_nothing_changed(load: Load, before: Obj) -> None:
    """Now, and as long as a manager would need that wants to change something."""
    deadline = time.monotonic() + STILL
    while time.monotonic() < deadline:
        now = load.state()
        for kind in ("pods", "jobs", "workloads"):
            other = {name for name in before[kind] if before[kind][name] != now[kind].get(name)}
            other |= now[kind].keys() - before[kind].keys()
            found = {name: (before[kind].get(name), now[kind].get(name)) for name in other}
            assert not found, f"{kind} are not as they were: {found}"
        time.sleep(1)
    eventually(lambda: load.state()["usage"] == before["usage"], 60)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_nothing_restarts_on_the_way_there_and_back(tmp_path: Path) -> None:
    with real_plane(tmp_path) as plane, Rest(plane.kubeconfig) as rest:
        managers = Managers(plane, rest, tmp_path)
        managers.install_go()
        with managers.go():
            load = Load(rest)
            load.create()
            time.sleep(STILL)
            before = load.state()
            print(managers.run("doctor", "--before-migration", codes=(0, 3)))
        managers.install_ours()
        with managers.ours():
            assert_nothing_changed(load, before)
            load.goes_on(0)
            refused(load)
            time.sleep(STILL)
            before = load.state()
        managers.install_go()
        with managers.go():
            assert_nothing_changed(load, before)
            load.goes_on(1)
            refused(load)


def refused(load: Load) -> None:
    """The webhooks answer: no Job may change its queue while it runs."""
    job = {"kind": "Job", **load.rest.get(f"{load.place.jobs}/run-5")}
    load.place.refused(
        lambda: load.place.merge(job, {"metadata": {"labels": {QUEUE: "groups"}}}), QUEUE
    )
