"""The page of a job kind's methods: `python tests/unit/docs/job_methods.py > FILE`.

Signatures come from the classes; `CALLED` and `WITHOUT` say what a class cannot say.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kueuelib import jobs
from kueuelib.jobs import GenericJob

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "job-methods.md"
HEAD = """# The methods of a job kind

A subclass of [`kueuelib.jobs.GenericJob`](jobs.md) names its `resource`, implements the methods
under *Required*, and can do more with *further classes* as bases. Methods read and change
`self.object` only. They do no I/O and read no clock, and may be called at any time and any number
of times. [Custom jobs](../custom-jobs.md) shows how to write a kind. This page is generated.
"""
CALLED: Mapping[str, str] = {
    "is_suspended": "in every reconciliation, and by the webhook: decides whether to start or to "
    "stop",
    "suspend": "on a copy: by the webhook when a job with the label of a queue is created (with "
    "`manageJobsWithoutQueueName`, any job), and to stop a job",
    "run_with_podsets_info": "on a copy, when the Workload is admitted and the job is suspended",
    "restore_podsets_info": "on a copy, in the same patch as `suspend`; and when another client "
    "has suspended a started job",
    "finished": "in every reconciliation, before anything is started or stopped",
    "pod_sets": "to make the Workload, to compare it with the job, and before a start",
    "is_active": "after a stop: the quota is free when it is False; see `is_terminating`",
    "pods_ready": "while the Workload is admitted, with `waitForPodsReady` only",
    "reclaimable_pods": "in every reconciliation while the job runs",
    "stop": "instead of `suspend` and `restore_podsets_info`, until it returns no command",
    "is_stopping": "in every reconciliation: an earlier stop is completed first",
    "finalize": "when a queued job has ended, and when any job of the kind is being deleted",
    "skip": "before everything else, and by the webhook when a job is created",
    "priority_class": "when the Workload is made, unless a label names a WorkloadPriorityClass",
    "is_equivalent": "for each Workload with the pod sets of the job, in every reconciliation",
    "after_release": "when the quota of an evicted job is free",
    "match_workloads": "in every reconciliation, for all Workloads of the job",
    "compose_workload": "when the job has no Workload",
    "run_members": "when the Workload is admitted",
    "stop_members": "to stop the job, until it returns no command",
    "remove_members": "when the retention time of a deactivated job is over",
}
WITHOUT: Mapping[str, str] = {
    "JobWithReclaimablePods": "quota is held for all pods until the end",
    "JobWithCustomStop": "one patch stops the job",
    "JobWithFinalize": "no finalizer is removed",
    "JobWithSkip": "no object is ignored",
    "JobWithPriorityClass": "the first pod template that names one decides",
    "JobWithEquivalence": "only the pod sets decide",
    "JobWithReplacements": "the Workload stays as it was released",
    "ComposableJob": "one object is one job",
}
OVERRIDE = """Override a property if the kind keeps the value elsewhere. A class that overrides
`queue_name` or `prebuilt_workload` is refused: webhooks, indexes and the children of a job only see
the label. Let a mutating webhook of yours set it on new objects.
"""
KEP_369: Mapping[str, str] = {
    "Object()": "`object`, raw JSON or a value of a class with `@crd`; `raw` is always JSON",
    "IsSuspended()": "`is_suspended`",
    "Suspend()": "`suspend`",
    "UnSuspend()": "`run_with_podsets_info`, which starts the job and adds node selectors "
    "in one write",
    "InjectNodeSelectors(...)": "`run_with_podsets_info`: each `PodSetInfo` has a node selector, "
    "labels, annotations, tolerations and a count. Kueue calls it `RunWithPodSetsInfo`",
    "RestoreNodeSelectors(...)": "`restore_podsets_info`; Kueue: `RestorePodSetsInfo`",
    "Finished()": "`finished`, which also says whether the job succeeded",
    "PodSets()": "`pod_sets`",
    "EquivalentToWorkload(wl)": "nothing to write: pod sets are compared; "
    "`JobWithEquivalence.is_equivalent` adds a condition",
    "PriorityClass()": "nothing to write: the first template that names one decides; "
    "`JobWithPriorityClass.priority_class` for other places",
    "QueueName()": "nothing to write: `queue_name` is the label of the object",
    "IgnoreFromQueueing()": "nothing to write for jobs without a queue name; "
    "`JobWithSkip.skip` for other objects",
    "PodsReady()": "`pods_ready`",
    "BatchJob": "`BatchJob`",
    "GenericReconcile(ctx, req, job, options)": "`setup(manager, cache, client, recorder, kinds)`: "
    "one controller and one webhook for each kind",
    "reconcileOptions.client": "the argument `client`",
    "reconcileOptions.scheme": "nothing to write: each kind has its `resource`",
    "reconcileOptions.record": "the argument `recorder`",
    "reconcileOptions.manageJobsWithoutQueueName": "`JobSettings.manage_jobs_without_queue_name`",
    "reconcileOptions.waitForPodsReady": "`JobSettings.wait_for_pods_ready`",
}
"""The names of the KEP, with ours."""
_FULL = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])")


def functions(cls: type) -> dict[str, Callable[..., Any]]:
    """The abstract methods of a class, in its order."""
    names = getattr(cls, "__abstractmethods__", frozenset())
    return {name: value for name, value in vars(cls).items() if name in names}


def capabilities() -> dict[str, type]:
    """The public classes that add methods to a job kind."""
    found = {name: getattr(jobs, name) for name in jobs.__all__}
    return {
        name: cls
        for name, cls in found.items()
        if inspect.isclass(cls) and functions(cls) and cls is not GenericJob
    }


def offered() -> dict[str, tuple[str, str]]:
    """What `GenericJob` has already: the signature, and the first line of its docstring."""
    rows = {}
    for name, value in vars(GenericJob).items():
        if name.startswith("_") or name in GenericJob.__abstractmethods__:
            continue
        if isinstance(value, property):
            rows[name] = (_shown(name, value.fget, is_property=True), _first(value))
        elif inspect.isfunction(value):
            rows[name] = (_shown(name, value), _first(value))
    return rows


def _shown(name: str, function: Any, *, is_property: bool = False) -> str:
    signature = inspect.signature(function)
    given = [each for each in signature.parameters.values() if each.name != "self"]
    text = str(signature.replace(parameters=given)).replace("'", "")
    arguments, _, result = text.partition(" -> ")
    return _FULL.sub("", f"{name}: {result}" if is_property else f"{name}{arguments} -> {result}")


def _first(value: object) -> str:
    return " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "\n## Required\n"
    yield from _table("Method", "What it says or does", "Called")
    for name, function in functions(GenericJob).items():
        yield _row(f"`{_shown(name, function)}`", _first(function), CALLED[name])
    yield "\n## With a default\n"
    yield OVERRIDE
    yield from _table("Member", "Default")
    for signature, default in offered().values():
        yield _row(f"`{signature}`", default)
    yield "\n## Further classes\n"
    yield from _table("Class", "Method", "What it says or does", "Called", "Without the class")
    for name, cls in capabilities().items():
        for method, function in functions(cls).items():
            shown, about = f"`{_shown(method, function)}`", _first(function)
            yield _row(f"`{name}`", shown, about, CALLED[method], WITHOUT[name])
    yield "\n## In the words of KEP-369\n"
    yield "The KEP describes the interface in Go. The table lists its names and ours.\n"
    yield from _table("KEP-369", "kueuelib.jobs")
    for kep, ours in KEP_369.items():
        yield _row(f"`{kep}`", ours)


def _table(*heads: str) -> Iterator[str]:
    yield _row(*heads)
    yield _row(*("---" for _ in heads))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    sys.stdout.write(page())
