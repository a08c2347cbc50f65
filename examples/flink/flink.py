"""FlinkDeployments in the queue: a word suspends them, in `spec.job.state`.

This is for application clusters of the Flink Kubernetes operator whose `taskManager.replicas` sets
the number of TaskManagers. Choose an `upgradeMode` other than `stateless` to keep the state of
the job when it is evicted.
"""

import copy
import re
from collections.abc import Sequence

from kueuelib.errors import FieldError, InvalidJob
from kueuelib.jobs import Pods, Word, declare, differs, equals, every
from kueuelib.runtime import Obj, Resource

JOB = "status.jobStatus.state"
UNITS = {"": "", "b": "", "k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti"}


def role(name: str) -> Pods:
    """The pods of one role: its template or the common one, with the resources of the role."""

    def default(obj: Obj) -> Obj:
        common: Obj = obj["spec"].get("podTemplate") or {}
        pod: Obj = common.get("spec") or {}
        main = [{"name": "flink-main-container"}]
        return copy.deepcopy({**common, "spec": {"containers": main, **pod}})

    def adds(obj: Obj) -> Sequence[Obj]:
        of_role: Obj = obj["spec"].get(name) or {}
        given: Obj = of_role.get("resource") or {}
        requests = {key: str(given[key]) for key in ("cpu", "memory") if key in given}
        if "memory" in requests:
            requests["memory"] = quantity(f"spec.{name}.resource.memory", requests["memory"])
        return [{"name": "resources", "resources": {"requests": requests}}]

    path = f"spec.{name}"
    template, count = f"{path}.podTemplate", f"{path}.replicas"
    return Pods(name.lower(), template, count, default=default, adds=adds)


def quantity(path: str, memory: str) -> str:
    """An amount of memory as Kubernetes writes it: for Flink, `2048m` is 2048Mi."""
    parts = re.fullmatch(r"(\d+)\s*([bkmgt]?)\w*", memory.strip().lower())
    if parts is None:
        raise InvalidJob(path, f"{memory!r} is not an amount of memory such as 2048m")
    return parts[1] + UNITS[parts[2]]


def validate(new: Obj, _: Obj | None) -> Sequence[FieldError]:
    """Require the number of TaskManagers, which decides how much quota they need."""
    if "replicas" in (new["spec"].get("taskManager") or {}):
        return ()
    detail = "Required value: quota is reserved for these replicas"
    return (FieldError("spec.taskManager.replicas", "FieldValueRequired", detail),)


integration = declare(
    Resource("flink.apache.org", "v1beta1", "flinkdeployments", "FlinkDeployment", namespaced=True),
    suspend=Word("spec.job.state", suspended="suspended", running="running"),
    pods=[role("jobManager"), role("taskManager")],
    active=differs("status.jobManagerDeploymentStatus", "MISSING"),
    ready=equals(JOB, "RUNNING"),
    # a suspended job says FINISHED as well
    succeeded=every(equals(JOB, "FINISHED"), equals("status.lifecycleState", "DEPLOYED", "STABLE")),
    failed=equals(JOB, "FAILED"),
    message="status.error",
    skip=lambda obj: "job" not in obj["spec"],  # a session cluster
    validate=validate,
)
