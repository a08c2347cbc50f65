"""A healthy cluster as plain objects, and what the checks find when something is changed."""

from __future__ import annotations

import copy
import time
from functools import cache
from typing import Any

import pytest

from kueuelib.api.crd import all_crds
from kueuelib.api.meta import Obj, format_time
from kueuelib.app.configuration import Configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.doctor.examining import examine
from kueuelib.app.doctor.finding import Finding
from kueuelib.app.doctor.snapshot import ClusterSnapshot, Review, TriedStart, WebhookProbe
from kueuelib.app.explaining.gather import QUEUEING, Lists, cluster_of
from kueuelib.app.installation import Installation
from kueuelib.controllers.webhooks import with_conversion
from kueuelib.runtime.certificates import Certificates, renewed
from kueuelib.runtime.webhook.trust import to_data, with_bundle

NOW = float(int(time.time()))
"""The present: a handshake judges certificates by the clock of the machine."""
LONG_AGO = format_time(NOW - 600)
PLAN = Installation("kueue-system")
ADDRESS = "https://127.0.0.1:9443"
OUTSIDE = Installation("kueue-system", ADDRESS)
"""A manager that runs elsewhere."""
QUEUE = "kueue.x-k8s.io/queue-name"


@cache
def certificates() -> Certificates:
    return renewed(None, OUTSIDE.names, NOW)


def thing(kind: str, name: str, namespace: str = "", **parts: Any) -> Obj:
    meta = {"name": name, "uid": f"uid-{name}", "creationTimestamp": LONG_AGO}
    if namespace:
        meta["namespace"] = namespace
    return {"kind": kind, "metadata": {**meta, **parts.pop("metadata", {})}, **parts}


def _definitions(plan: Installation) -> list[Obj]:
    crds = []
    for crd in all_crds():
        made = with_bundle(with_conversion(crd, plan.client_config), certificates().ca_cert)
        said = [{"type": name, "status": "True"} for name in ("Established", "NamesAccepted")]
        made["status"] = {"conditions": said, "storedVersions": ["v1beta2"]}
        crds.append(made)
    return crds


def _queueing() -> list[Obj]:
    quota = {"name": "cpu", "nominalQuota": "4"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}
    since = {"lastTransitionTime": LONG_AGO, "message": ""}
    reserved = {"name": "f", "resources": [{"name": "cpu", "total": "3", "borrowed": "0"}]}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}
    pods = [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "uid-job"}
    assigned = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}, "count": 1}
    conditions = [
        {"type": name, "status": "True", "reason": name, **since}
        for name in ("QuotaReserved", "Admitted")
    ]
    return [
        thing("ResourceFlavor", "f", spec={"nodeLabels": {"pool": "f"}}),
        thing(
            "ClusterQueue",
            "cq",
            spec={"namespaceSelector": {}, "resourceGroups": [group]},
            status={
                "conditions": [{"type": "Active", "status": "True", "reason": "Ready", **since}],
                "reservingWorkloads": 1,
                "flavorsReservation": [reserved],
            },
        ),
        thing("LocalQueue", "lq", "ns", spec={"clusterQueue": "cq"}),
        thing(
            "Workload",
            "runs",
            "ns",
            metadata={"ownerReferences": [{**job, "controller": True}]},
            spec={"queueName": "lq", "podSets": pods},
            status={
                "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
                "conditions": conditions,
            },
        ),
        thing("Workload", "waits", "ns", spec={"queueName": "lq", "podSets": pods}),
    ]


def _around(plan: Installation) -> list[Obj]:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    lease = {
        "holderIdentity": "manager-1",
        "leaseDurationSeconds": 15,
        "renewTime": format_time(NOW - 3),
    }
    hooks = [with_bundle(obj, certificates().ca_cert) for obj in plan.webhooks()]
    return [
        *copy.deepcopy(hooks),
        thing(
            "Secret",
            "kueue-webhook-server-cert",
            "kueue-system",
            data=to_data(certificates()),
        ),
        thing("ServiceAccount", "kueue-controller-manager", "kueue-system"),
        thing("Service", "kueue-webhook-service", "kueue-system"),
        thing("Lease", "c1f6bfd2.kueue.x-k8s.io", "kueue-system", spec=lease),
        thing("Namespace", "ns"),
        thing(
            "Node",
            "n",
            metadata={"labels": {"pool": "f"}},
            spec={},
            status={**ready, "allocatable": {"cpu": "4", "pods": "110"}},
        ),
    ]


class Patient:
    """A healthy cluster, to be made ill.

    Args:
        plan: how it was installed.

    Attributes:
        objects: its objects; a test adds, removes and changes some.
    """

    def __init__(self, plan: Installation = PLAN) -> None:
        self.objects = [*_definitions(plan), *_queueing(), *_around(plan)]
        self.reviews: list[Review] = [Review("", "events", "create", "", allowed=True, binding="")]
        self.calls: list[WebhookProbe] = [WebhookProbe("admission", "")]
        self.starts: list[TriedStart] = []
        self.unseen: dict[str, str] = {}
        self.configuration = Configuration()
        self.file = ""
        self.now = NOW

    def get(self, kind: str, name: str = "") -> Obj:
        """The object of that kind and name, to be changed in place."""
        return next(
            obj
            for obj in self.objects
            if obj["kind"] == kind and name in ("", obj["metadata"]["name"])
        )

    def remove(self, kind: str, name: str = "") -> None:
        self.objects.remove(self.get(kind, name))

    def add(self, kind: str, name: str, namespace: str = "", **parts: Any) -> Obj:
        self.objects.append(thing(kind, name, namespace, **parts))
        return self.objects[-1]

    def snapshot(self) -> ClusterSnapshot:
        kinds = {obj["kind"] for obj in self.objects} | {one.kind for one in QUEUEING}
        lists = Lists(
            {kind: [obj for obj in self.objects if obj["kind"] == kind] for kind in kinds}, {}
        )
        return ClusterSnapshot(
            now=self.now,
            lists=lists,
            cluster=cluster_of(lists, engine_settings(self.configuration)),
            reviews=self.reviews,
            calls=self.calls,
            starts=self.starts,
            unseen=self.unseen,
            configuration=self.configuration,
            file=self.file,
        )

    def found(self) -> list[tuple[str, Finding]]:
        return list(examine(self.snapshot()).findings)

    def names(self) -> list[tuple[str, str]]:
        """The check and the object of every finding of all checks."""
        return [(name, str(one.subject)) for name, one in self.found()]

    def causes(self) -> dict[str, str]:
        """The checks whose findings follow from those of other ones."""
        report = examine(self.snapshot())
        name = lambda place: report.findings[place][0]  # noqa: E731
        return {name(place): name(cause) for place, cause in report.causes.items()}

    def only(self, check: str) -> Finding:
        """The only finding of all checks, which is one of this check."""
        findings = self.found()
        assert [name for name, _ in findings] == [check], findings
        return findings[0][1]


@pytest.fixture
def patient() -> Patient:
    return Patient()


@pytest.fixture
def outside() -> Patient:
    """A cluster whose manager runs elsewhere."""
    return Patient(OUTSIDE)
