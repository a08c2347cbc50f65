"""What the demo creates, observes and expects. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from kueuelib.api.kinds import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    RESOURCE_FLAVORS,
)
from kueuelib.api.meta import Obj, Resource, find_condition, is_true, parse_time
from kueuelib.api.quantity import Quantity, amount_of
from kueuelib.api.workload_state import is_finished
from kueuelib.workload.short_reasons import shorten

NAMESPACE = "demo"
POOL_LABEL = "kueuelib.dev/pool"
RUN_SECONDS = "kueuelib.dev/run-seconds"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
COHORT = "demo"

QUOTA: Mapping[str, Mapping[str, int]] = {
    "red": {"on-demand": 3, "spot": 2},
    "blue": {"on-demand": 3, "spot": 2},
}
"""CPUs per ClusterQueue and flavor; both queues share a cohort and lend what is idle."""

SHAPES = ((1, 2, 2.0), (2, 1, 3.0), (1, 1, 1.5), (3, 1, 2.5))
"""Pods, CPUs per pod and seconds of the Jobs, used in turn."""


def setup() -> Iterator[tuple[Resource, Obj]]:
    """Namespace, flavors and queues."""
    yield NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    for flavor in ("on-demand", "spot"):
        labels = {POOL_LABEL: flavor}
        yield RESOURCE_FLAVORS, _obj(RESOURCE_FLAVORS, flavor, spec={"nodeLabels": labels})
    for name, flavors in QUOTA.items():
        quotas = [
            {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": str(cpus)}]}
            for flavor, cpus in flavors.items()
        ]
        spec = {
            "cohortName": COHORT,
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}],
        }
        yield CLUSTER_QUEUES, _obj(CLUSTER_QUEUES, name, spec=spec)
        yield LOCAL_QUEUES, _obj(LOCAL_QUEUES, name, NAMESPACE, spec={"clusterQueue": name})


def job(index: int) -> Obj:
    """The Job number `index`: two of three go to the red queue, which is too small for them."""
    pods, cpus, seconds = SHAPES[index % len(SHAPES)]
    container = {
        "name": "work",
        "image": "registry.example/work:1",
        "resources": {"requests": {"cpu": str(cpus)}},
    }
    template = {
        "metadata": {"annotations": {RUN_SECONDS: str(seconds)}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    made = _obj(JOBS, f"job-{index + 1:02d}", NAMESPACE)
    made["metadata"]["labels"] = {QUEUE_LABEL: "blue" if index % 3 == 2 else "red"}
    made["spec"] = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 0,
        "template": template,
    }
    return made


def _obj(resource: Resource, name: str, namespace: str = "", **fields: Any) -> Obj:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": meta,
        **fields,
    }


@attrs.define
class JobRow:
    """What is known about one Job.

    Attributes:
        state: `Created`, `Queued`, `Admitted`, `Running`, `Finished` or `Failed`.
        cpus: the CPUs that all its pods ask for together.
        waited: seconds from the creation of the Workload to its admission, by the API's clock.
        started_at: the server's revision when the Job was first seen without `suspend`.
        admitted_at: the server's revision when its Workload was first seen admitted. The two arrive
            on two watches, in either order; the demo's server counts revisions for all kinds
            together, so they show which write came first.
    """

    name: str
    queue: str = ""
    request: str = ""
    state: str = "Created"
    flavors: str = ""
    note: str = ""
    cpus: int = 0
    waited: float | None = None
    was_suspended: bool = False
    had_to_wait: bool = False
    selector: Mapping[str, str] = attrs.field(factory=dict)
    started_at: int | None = None
    admitted_at: int | None = None

    @property
    def holds(self) -> bool:
        """Whether it has quota, according to its state."""
        return self.state in ("Admitted", "Running")

    @property
    def waits(self) -> bool:
        """Whether it waits for quota, according to its state."""
        return self.state in ("Created", "Queued")


@attrs.define
class Board:
    """Everything the demo has seen on its watches.

    Attributes:
        wanted: names of the Jobs that must finish.
        lines: what happened, oldest first, as text.
        peak: the largest use of each flavor that was seen, in CPUs.
    """

    wanted: tuple[str, ...]
    rows: dict[str, JobRow] = attrs.field(factory=dict)
    usage: dict[str, dict[str, int]] = attrs.field(factory=dict)
    peak: dict[str, int] = attrs.field(factory=dict)
    leftovers: set[str] = attrs.field(factory=set)
    lines: list[str] = attrs.field(factory=list)
    faults: list[str] = attrs.field(factory=list)

    @property
    def done(self) -> bool:
        """Whether every Job has ended and every Workload has released its quota."""
        ended = all(row.state in ("Finished", "Failed") for row in self.rows.values())
        seen = all(name in self.rows for name in self.wanted)
        return seen and ended and not self.usage and not self.leftovers

    @property
    def settled(self) -> bool:
        """Whether the watches of Jobs and Workloads show one moment: what a Job holds is what it
        asks for, and a Job that waits or has ended holds nothing.
        """
        return all(
            sum(self.usage.get(name, {}).values()) == (1000 * row.cpus if row.holds else 0)
            for name, row in self.rows.items()
        )

    def see_job(self, obj: Obj) -> None:
        """A Job as a watch delivered it."""
        name = obj["metadata"]["name"]
        spec = obj["spec"]
        row = self.rows.setdefault(name, JobRow(name))
        cpus = spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        row.queue = obj["metadata"]["labels"][QUEUE_LABEL]
        row.request = f"{spec['parallelism']} x {cpus} cpu"
        row.cpus = spec["parallelism"] * int(cpus)
        status = obj.get("status") or {}
        if spec.get("suspend"):
            row.was_suspended = True
        elif row.started_at is None:
            row.started_at = int(obj["metadata"]["resourceVersion"])
        selector = spec["template"]["spec"].get("nodeSelector") or {}
        if selector:
            row.selector = dict(selector)
        if is_true(obj, "Complete"):
            self._move(row, "Finished")
        elif is_true(obj, "Failed"):
            self._move(row, "Failed")
            self._fault(f"{name} failed")
        elif status.get("active") and not spec.get("suspend"):
            self._move(row, "Running")

    def see_workload(self, obj: Obj, *, deleted: bool = False) -> None:
        """A Workload as a watch delivered it."""
        meta = obj["metadata"]
        name = next((ref["name"] for ref in meta.get("ownerReferences") or ()), "")
        if not name:
            return
        row = self.rows.setdefault(name, JobRow(name))
        status = obj.get("status") or {}
        conditions, finished = status.get("conditions"), is_finished(obj)
        admission = status.get("admission")
        if finished and not meta.get("finalizers"):
            self.leftovers.discard(name)
        elif not deleted:
            self.leftovers.add(name)
        if admission and not finished and not deleted:
            self._hold(row, admission, status.get("reclaimablePods") or ())
        else:
            self.usage.pop(name, None)
        reserved = find_condition(conditions, "QuotaReserved")
        admitted = find_condition(conditions, "Admitted")
        if admitted.get("status") == "True":
            if row.admitted_at is None:
                row.admitted_at = int(meta["resourceVersion"])
                since = parse_time(meta["creationTimestamp"])
                row.waited = parse_time(admitted["lastTransitionTime"]) - since
                self.lines.append(f"{row.name} admitted on {row.flavors}")
            row.note = ""
            self._move(row, "Admitted")
        elif reserved.get("status") == "False":
            self._move(row, "Queued")
            row.note = shorten(reserved.get("message", ""))
            if not row.had_to_wait:
                self.lines.append(f"{row.name} waits: {row.note}")
            row.had_to_wait = True
        elif not finished:
            self._move(row, "Queued")

    def _hold(self, row: JobRow, admission: Mapping[str, Any], reclaimable: Iterable[Obj]) -> None:
        """Counts quota and checks it against the cohort's limits.

        A pod that has succeeded releases its part before the others have ended.
        """
        gone = {pods["name"]: pods["count"] for pods in reclaimable}
        held: dict[str, int] = {}
        for assignment in admission["podSetAssignments"]:
            count = assignment["count"]
            left = count - gone.get(assignment["name"], 0)
            for resource, flavor in assignment["flavors"].items():
                amount = amount_of(resource, Quantity.parse(assignment["resourceUsage"][resource]))
                held[flavor] = held.get(flavor, 0) + amount * left // count
        row.flavors = ", ".join(sorted(held))
        self.usage[row.name] = held
        for flavor in held:
            used = sum(by_flavor.get(flavor, 0) for by_flavor in self.usage.values()) / 1000
            limit = sum(flavors[flavor] for flavors in QUOTA.values())
            self.peak[flavor] = max(self.peak.get(flavor, 0), round(used))
            if used > limit:
                self._fault(f"{flavor}: {used:g} CPUs in use, the cohort has {limit}")

    def _move(self, row: JobRow, state: str) -> None:
        order = ("Created", "Queued", "Admitted", "Running", "Finished", "Failed")
        if order.index(state) <= order.index(row.state):
            return
        row.state = state
        if state != "Admitted":
            self.lines.append(f"{row.name} {state.lower()}")

    def _fault(self, text: str) -> None:
        if text not in self.faults:
            self.faults.append(text)
            self.lines.append(f"UNEXPECTED: {text}")

    def verdict(self) -> list[str]:
        """What was expected but did not happen; empty if all is well."""
        faults = list(self.faults)
        for name in self.wanted:
            row = self.rows.get(name)
            if row is None:
                faults.append(f"{name} was never seen")
                continue
            if row.state != "Finished":
                faults.append(f"{name} ended as {row.state}, not Finished")
            if not row.was_suspended:
                faults.append(f"{name} was never suspended")
            if row.admitted_at is None:
                faults.append(f"{name} was never admitted")
            elif row.started_at is not None and row.started_at < row.admitted_at:
                faults.append(f"{name} ran before anything had admitted it")
            flavor = row.selector.get(POOL_LABEL)
            if row.flavors and flavor != row.flavors:
                faults.append(f"{name} got {row.flavors} and selected nodes of {flavor}")
        if len(self.wanted) > 2 * sum(len(flavors) for flavors in QUOTA.values()) and not any(
            row.had_to_wait for row in self.rows.values()
        ):
            faults.append("no Job had to wait")
        faults += [f"the Workload of {name} was not released" for name in sorted(self.leftovers)]
        return faults
