"""AdmissionChecks with parameters, from the Go manager to ours and back: none becomes inactive."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Self

import httpx
import pytest
from place import DOMAIN, TIME, Place, name_of, uid_of
from real_plane import real_plane
from rest import KUEUE, Obj, Rest, condition, eventually, is_true
from test_migration import MISSING, STILL, Managers

sys.path.insert(0, str(Path(__file__).parents[1] / "kinds"))

from samples import definition

from kueuelib.api.meta import Resource

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1"
REQUEST = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", namespaced=True
)
CONTROLLER = f"{DOMAIN}/provisioning-request"


class Activity:
    """Every state of the condition Active of some objects, as watches show them."""

    def __init__(self, kubeconfig: Path, *paths: str) -> None:
        self._kubeconfig = kubeconfig
        self._over = threading.Event()
        self.seen: list[tuple[str, str, str, str]] = []
        self._threads = [threading.Thread(target=self._follow, args=(path,)) for path in paths]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _follow(self, path: str) -> None:
        with Rest(self._kubeconfig) as rest:
            while not self._over.is_set():
                try:
                    for _, obj in rest.watch(path, 2):
                        self._note(obj)
                except httpx.HTTPError:  # its definition is written again
                    time.sleep(0.1)

    def _note(self, obj: Obj) -> None:
        active = condition(obj, "Active")
        name = f"{obj['kind']} {obj['metadata']['name']}"
        state = (
            name,
            active.get("status", ""),
            active.get("reason", ""),
            active.get("message", ""),
        )
        if state not in self.seen[-1:]:
            self.seen.append(state)

    def inactive(self) -> list[tuple[str, str, str, str]]:
        return [each for each in self.seen if each[1] != "True"]


def provisioning(place: Place) -> str:
    """A check of the built-in controller with its parameters; its name."""
    spec = {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io"}
    config = {"kind": "ProvisioningRequestConfig", "metadata": {"name": "config"}, "spec": spec}
    place.rest.create(
        f"{KUEUE}/provisioningrequestconfigs", {"apiVersion": f"{DOMAIN}/v1beta2", **config}
    )
    parameters = {"apiGroup": DOMAIN, "kind": config["kind"], "name": "config"}
    return place.create(
        "AdmissionCheck", "capacity", spec={"controllerName": CONTROLLER, "parameters": parameters}
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_no_check_becomes_inactive(tmp_path: Path) -> None:
    """And requests for nodes stay, with the Workloads that wait for them."""
    with real_plane(tmp_path) as plane, Rest(plane.kubeconfig) as rest:
        parts = {"spec": "any", "status": "any"}
        rest.create(CRDS, definition(REQUEST, REQUEST.kind, "Namespaced", parts))
        managers = Managers(plane, rest, tmp_path)
        managers.install_go()
        checks, queues = f"{KUEUE}/admissionchecks", f"{KUEUE}/clusterqueues"
        with managers.go():
            place = Place(rest)
            check = f"{checks}/{provisioning(place)}"
            place.check("gate")
            place.queue(5, "main", checks=("capacity", "gate"))
            queue = f"{queues}/{place.named('main')}"
            eventually(lambda: is_true(rest.get(check), "Active"))
            eventually(lambda: is_true(rest.get(queue), "Active"))
            jobs = [place.job(f"j{number}", "main") for number in range(3)]
            path = f"{REQUESTS}/namespaces/{place.ns}/provisioningrequests"
            eventually(lambda: len(rest.items(path)) == len(jobs))

        def state() -> list[object]:
            active = [condition(rest.get(one), "Active") for one in (check, queue)]
            requests = {name_of(one): uid_of(one) for one in rest.items(path)}
            return [requests, *(one["lastTransitionTime"] for one in active)]

        before = state()
        with Activity(plane.kubeconfig, checks, queues) as activity:
            managers.install_ours()
            with managers.ours():
                time.sleep(STILL)
                assert not activity.inactive()
                assert state() == before
                provision(place, path, jobs[0])
            managers.install_go()
            with managers.go():
                time.sleep(STILL)
                assert not activity.inactive()
                assert state() == before
                provision(place, path, jobs[1])


def provision(place: Place, path: str, job: Obj) -> None:
    """The autoscaler has made nodes for a job, and the other check has passed it as well."""
    workload = place.workload(job)
    name = f"{name_of(workload)}-{place.named('capacity')}-1"
    done = {"type": "Provisioned", "status": "True", "reason": "Provisioned", "message": "done"}
    conditions = [{**done, "lastTransitionTime": TIME}]
    place.rest.merge(f"{path}/{name}/status", {"status": {"conditions": conditions}})
    place.answer(workload, "gate", "Ready")
    place.runs(job)
