"""A job of a trace as a value: its arrival, requests and run time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

import attrs
import orjson

from kueuelib.api.meta import Obj
from kueuelib.api.patterns import MAIN_POD_SET

CPU = "cpu"
MEMORY = "memory"
GPU = "nvidia.com/gpu"
GPU_MILLI = "kueuelib.dev/gpu-milli"
"""The resource for thousandths of a GPU, for traces with shared GPUs; extended resources have
no fractions.
"""

COMPLETED = "completed"
FAILED = "failed"
KILLED = "killed"
END_STATES = (COMPLETED, FAILED, KILLED)


@attrs.frozen
class PodShape:
    """Identical pods.

    Attributes:
        count: how many.
        requests: what one pod asks for: resource and Kubernetes quantity, sorted.
        name: of the pod set.
        min_count: the fewest pods worth starting; None: all of them.
        pod_set: the raw pod set as JSON, if it comes from a manifest; for the scheduler it replaces
            the others.
    """

    count: int = 1
    requests: tuple[tuple[str, str], ...] = ()
    name: str = MAIN_POD_SET
    min_count: int | None = None
    pod_set: bytes = b""

    def raw(self) -> Obj:
        """The pod set as a Workload has it."""
        if self.pod_set:
            given: Obj = orjson.loads(self.pod_set)
            return given
        container = {"name": "c", "image": "-", "resources": {"requests": dict(self.requests)}}
        template = {"spec": {"containers": [container]}}
        pod_set: Obj = {"name": self.name, "count": self.count, "template": template}
        if self.min_count is not None:
            pod_set["minCount"] = self.min_count
        return pod_set


def pods(
    requests: Mapping[str, int | Fraction | str], count: int = 1, min_count: int | None = None
) -> PodShape:
    """Pods with requests: whole numbers, fractions rounded up to thousandths, or quantities.

    Amounts of 0 are left out.
    """
    texts = ((resource, _text(amount)) for resource, amount in requests.items())
    asked = tuple(sorted((resource, text) for resource, text in texts if text != "0"))
    return PodShape(count, asked, min_count=min_count)


def _text(amount: int | Fraction | str) -> str:
    if isinstance(amount, str):
        return amount
    if amount == int(amount):
        return str(int(amount))
    return f"{-(-amount * 1000 // 1)}m"


@attrs.frozen
class TraceJob:
    """One line of a trace. Times are seconds on the trace's own clock.

    Attributes:
        name: unique in its namespace.
        arrival: when it is submitted.
        run_seconds: its run time if all its pods run and nothing stops it.
        pod_sets: what it asks for.
        queue: its LocalQueue.
        namespace: of the job and its LocalQueue.
        priority: higher goes first.
        end: how it ends: `completed`, `failed` or `killed`; it runs for `run_seconds` either way.
        after: the name of the job that has to end before this one is submitted; empty for none.
        think_seconds: the shortest delay between the end of that job and the submission of this
            one.
        checkpoint_seconds: how often it saves its work; None: never, it restarts from scratch.
        limit_seconds: how long it may be admitted in total; None: without a limit.
        requested_seconds: the run time that its user expected, for the output only.
        user: who submitted it, for `--queue-by`.
        group: the group of the user, for `--queue-by`.
        vc: its virtual cluster, for `--queue-by`.
        workload: its raw Workload as JSON, with its own times and perhaps quota.
        ran_seconds: how long it has already run on arrival, if its Workload is admitted.
    """

    name: str
    arrival: float
    run_seconds: float
    pod_sets: tuple[PodShape, ...]
    queue: str = ""
    namespace: str = "default"
    priority: int = 0
    end: str = COMPLETED
    after: str = ""
    think_seconds: float = 0.0
    checkpoint_seconds: float | None = None
    limit_seconds: int | None = None
    requested_seconds: float | None = None
    user: str = ""
    group: str = ""
    vc: str = ""
    workload: bytes = b""
    ran_seconds: float = 0.0

    @property
    def shape(self) -> str:
        """Its requests as a text; jobs with the same text are counted together."""
        return shape_of(self.pod_sets)


def shape_of(pod_sets: Iterable[PodShape]) -> str:
    """The text of a shape, for example `4x(cpu=2,memory=1Gi)`."""
    return "+".join(
        f"{shape.count}x({','.join(f'{name}={text}' for name, text in shape.requests)})"
        for shape in pod_sets
    )
