"""The `generator.yaml` of Kueue's own performance test: queues and their work in one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from kueuelib.api.kinds import KUEUE, V1BETA2
from kueuelib.api.meta import Obj
from kueuelib.errors import ConfigError
from kueuelib.simulator.faults import BadValue, Faults
from kueuelib.simulator.parsing import amount, whole
from kueuelib.simulator.readers.source import Source, whole_text
from kueuelib.simulator.work import CPU, Job, pods

FLAVOR = "rf"
_COHORT = {"className", "count", "queuesSets"}
_QUEUE = {
    *("className", "count", "nominalQuota", "borrowingLimit", "reclaimWithinCohort"),
    *("withinClusterQueue", "workloadsSets"),
}
_SET = {"count", "creationIntervalMs", "workloads"}
_WORKLOAD = {"className", "runtimeMs", "priority", "request"}


def read(path: Path, faults: Faults, source: Source) -> Iterator[Job]:
    """The jobs of a file, one ClusterQueue after the other.

    Args:
        path: the file.
        faults: not used, because an error in such a file affects all of its jobs.
        source: receives the flavor, the ClusterQueues, the LocalQueues and the names of the jobs.

    Raises:
        ConfigError: the file cannot be read, or uses a feature that is not simulated.
    """
    del faults
    try:
        content = yaml.safe_load(whole_text(path))
        cohorts = content.get("cohorts") if isinstance(content, dict) else content
        if isinstance(content, dict):
            _known("", content, {"cohorts"})
        source.objects.append(_object("ResourceFlavor", FLAVOR, {}))
        for set_ in _list("cohorts", cohorts):
            yield from _cohorts(set_, source)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise ConfigError(str(path), f"malformed YAML: {problem}", "correct the file") from error
    except BadValue as error:
        subject = f"{path}: {error.field}" if error.field else str(path)
        raise ConfigError(subject, error.reason, "give a generator.yaml") from error


def _cohorts(set_: Mapping[str, Any], source: Source) -> Iterator[Job]:
    _known("cohorts", set_, _COHORT)
    for number in range(_count(set_)):
        cohort = f"{set_.get('className', 'cohort')}-{number}"
        for index, queues in enumerate(_list("queuesSets", set_.get("queuesSets"))):
            _known("queuesSets", queues, _QUEUE)
            for place in range(_count(queues)):
                name = f"{queues.get('className', 'cq')}-{index}-{place}-{cohort}"
                source.objects += _queue(name, cohort, queues)
                for part, work in enumerate(_list("workloadsSets", queues.get("workloadsSets"))):
                    for job in _jobs(work, part, name, source.prefix):
                        source.claim(job)
                        yield job


def _queue(name: str, cohort: str, queues: Mapping[str, Any]) -> Iterator[Obj]:
    resource = {"name": CPU, "nominalQuota": amount(queues.get("nominalQuota"), "nominalQuota")}
    if queues.get("borrowingLimit") not in (None, ""):
        resource["borrowingLimit"] = amount(queues["borrowingLimit"], "borrowingLimit")
    group = {"coveredResources": [CPU], "flavors": [{"name": FLAVOR, "resources": [resource]}]}
    policies = ("reclaimWithinCohort", "withinClusterQueue")
    spec = {
        "cohortName": cohort,
        "namespaceSelector": {},
        "resourceGroups": [group],
        "preemption": {key: queues[key] for key in policies if queues.get(key)},
    }
    yield _object("ClusterQueue", name, spec)
    yield _object("LocalQueue", name, {"clusterQueue": name}, name)


def _jobs(work: Mapping[str, Any], part: int, queue: str, prefix: str) -> Iterator[Job]:
    _known("workloadsSets", work, _SET)
    pause = whole(work.get("creationIntervalMs", 0), "creationIntervalMs", least=0) / 1000
    templates = _list("workloads", work.get("workloads"))
    for template in templates:
        _known("workloads", template, _WORKLOAD)
    arrivals = 0
    for number in range(_count(work)):
        for place, template in enumerate(templates):
            arrivals += 1
            yield Job(
                name=f"{prefix}{template.get('className', 'wl')}-{part}-{number}-{place}",
                arrival=arrivals * pause,
                run_seconds=whole(template.get("runtimeMs", 0), "runtimeMs", least=0) / 1000,
                pod_sets=(pods({CPU: amount(template.get("request"), "request")}),),
                queue=queue,
                namespace=queue,
                priority=whole(template.get("priority", 0), "priority"),
            )


def _count(entry: Mapping[str, Any]) -> int:
    return whole(entry.get("count", 1), "count", least=0)


def _list(field: str, value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise BadValue(field, "is not a list of mappings")
    return value


def _known(field: str, entry: Mapping[str, Any], keys: set[str]) -> None:
    for key in entry:
        if key not in keys:
            raise BadValue(f"{field}.{key}".lstrip("."), "is not simulated")


def _object(kind: str, name: str, spec: Obj, namespace: str = "") -> Obj:
    meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": f"{KUEUE}/{V1BETA2}", "kind": kind, "metadata": meta, "spec": spec}
