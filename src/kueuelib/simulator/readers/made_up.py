"""Made-up work: from a description in YAML, and Kueue's own `generator.yaml`.

    seed: 7
    days: 7
    arrivals: daily             poisson, or daily: most at noon, least at midnight
    jobs: 50000                 expected; `--scale 1.2` makes it 60,000
    queues: {team-a: 3, team-b: 1}
    shapes:
    - {weight: 3, cpu: 1, memory: 2Gi, runSeconds: {median: 600, sigma: 1.5}}
    - {weight: 1, cpu: 8, pods: 4, priority: 100, runSeconds: {median: 3600, sigma: 1}}

Times are whole seconds, so that they do not depend on a machine's logarithm.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import yaml

from kueuelib.api.kinds import KUEUE, V1BETA2
from kueuelib.api.meta import Obj
from kueuelib.errors import ConfigError
from kueuelib.simulator.parsing import BadValue, Faults, amount, not_negative, whole
from kueuelib.simulator.readers.source import TraceSource, whole_text
from kueuelib.simulator.trace import CPU, GPU, MEMORY, PodShape, TraceJob, pods

# ---- the `generator.yaml` of Kueue's own performance test: queues and their work in one file -----

FLAVOR = "rf"
_COHORT = {"className", "count", "queuesSets"}
_QUEUE = {
    *("className", "count", "nominalQuota", "borrowingLimit", "reclaimWithinCohort"),
    *("withinClusterQueue", "workloadsSets"),
}
_SET = {"count", "creationIntervalMs", "workloads"}
_WORKLOAD = {"className", "runtimeMs", "priority", "request"}


def read_generator(path: Path, faults: Faults, source: TraceSource) -> Iterator[TraceJob]:
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
            _check_keys("", content, {"cohorts"})
        source.objects.append(_object("ResourceFlavor", FLAVOR, {}))
        for set_ in _list("cohorts", cohorts):
            yield from _cohorts(set_, source)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise ConfigError(str(path), f"malformed YAML: {problem}", "correct the file") from error
    except BadValue as error:
        subject = f"{path}: {error.field}" if error.field else str(path)
        raise ConfigError(subject, error.reason, "give a generator.yaml") from error


def _cohorts(set_: Mapping[str, Any], source: TraceSource) -> Iterator[TraceJob]:
    _check_keys("cohorts", set_, _COHORT)
    for number in range(_count(set_)):
        cohort = f"{set_.get('className', 'cohort')}-{number}"
        for index, queues in enumerate(_list("queuesSets", set_.get("queuesSets"))):
            _check_keys("queuesSets", queues, _QUEUE)
            for place in range(_count(queues)):
                name = f"{queues.get('className', 'cq')}-{index}-{place}-{cohort}"
                source.objects += _queue(name, cohort, queues)
                for part, work in enumerate(_list("workloadsSets", queues.get("workloadsSets"))):
                    for job in _jobs_of_work(work, part, name, source.prefix):
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


def _jobs_of_work(
    work: Mapping[str, Any], part: int, queue: str, prefix: str
) -> Iterator[TraceJob]:
    _check_keys("workloadsSets", work, _SET)
    pause = whole(work.get("creationIntervalMs", 0), "creationIntervalMs", least=0) / 1000
    templates = _list("workloads", work.get("workloads"))
    for template in templates:
        _check_keys("workloads", template, _WORKLOAD)
    arrivals = 0
    for number in range(_count(work)):
        for place, template in enumerate(templates):
            arrivals += 1
            yield TraceJob(
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


def _check_keys(field: str, entry: Mapping[str, Any], keys: set[str]) -> None:
    for key in entry:
        if key not in keys:
            raise BadValue(f"{field}.{key}".lstrip("."), "is not simulated")


def _object(kind: str, name: str, spec: Obj, namespace: str = "") -> Obj:
    meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": f"{KUEUE}/{V1BETA2}", "kind": kind, "metadata": meta, "spec": spec}


# --------------------------------------------------------------------------------------------------

DAY = 86_400.0
LONGEST = 30 * DAY
"""The longest run time, because a log-normal distribution is unbounded."""
_KEYS = {"seed", "days", "arrivals", "jobs", "queues", "shapes"}
_SHAPE = {"weight", "cpu", "memory", "gpu", "requests", "pods", "minPods", "priority", "runSeconds"}
_SHORT = {"cpu": CPU, "memory": MEMORY, "gpu": GPU}


@attrs.frozen
class _Shape:
    weight: float
    pods: PodShape
    priority: int
    median: float
    sigma: float


def read_synthetic(
    path: Path, faults: Faults, source: TraceSource, *, scale: float = 1.0
) -> Iterator[TraceJob]:
    """The jobs of a description.

    Args:
        path: the file.
        faults: not used, because an error in a description affects all of its jobs.
        source: receives the names of the jobs.
        scale: a factor for the work.

    Raises:
        ConfigError: the file cannot be read, or a key is wrong.
    """
    del faults
    try:
        content = yaml.safe_load(whole_text(path))
        _known("", content, _KEYS)
        for job in _jobs(content, scale, source.prefix):
            source.claim(job)
            yield job
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise ConfigError(str(path), f"malformed YAML: {problem}", "correct the file") from error
    except BadValue as error:
        raise ConfigError(f"{path}: {error.field}", error.reason, "correct the value") from error


def _jobs(content: Mapping[str, Any], scale: float, prefix: str) -> Iterator[TraceJob]:
    chance = random.Random(whole(content.get("seed", 0), "seed"))
    end = not_negative(content.get("days", 1), "days") * DAY
    count = not_negative(content.get("jobs"), "jobs") * scale
    daily = content.get("arrivals", "poisson")
    if daily not in ("poisson", "daily"):
        raise BadValue("arrivals", f"{daily!r} is neither poisson nor daily")
    queues = content.get("queues") or {"default": 1}
    if not isinstance(queues, Mapping):
        raise BadValue("queues", "is not a mapping of names to weights")
    names = [str(name) for name in queues]
    weights = [not_negative(weight, f"queues.{name}") for name, weight in queues.items()]
    shapes = [_shape(number, one) for number, one in enumerate(content.get("shapes") or ())]
    shape_weights = [shape.weight for shape in shapes]
    if not sum(weights) or not sum(shape_weights):
        raise BadValue("queues" if shapes else "shapes", "nothing has a weight")
    for number, now in enumerate(_arrivals(chance, end, count, daily=daily == "daily")):
        shape = chance.choices(shapes, shape_weights)[0]
        seconds = shape.median * math.exp(chance.gauss(0.0, shape.sigma))
        yield TraceJob(
            name=f"{prefix}job-{number}",
            arrival=now,
            run_seconds=float(max(1, round(min(seconds, LONGEST)))),
            pod_sets=(shape.pods,),
            queue=chance.choices(names, weights)[0],
            priority=shape.priority,
        )


def _arrivals(chance: random.Random, end: float, count: float, *, daily: bool) -> Iterator[float]:
    """Whole seconds at which jobs arrive; the daily rhythm does not change their number."""
    if not count or not end:
        return
    peak = count / end * (2.0 if daily else 1.0)
    now = 0.0
    while (now := now + chance.expovariate(peak)) < end:
        if daily and chance.random() >= (1.0 - math.cos(now / DAY * math.tau)) / 2.0:
            continue
        yield float(round(now))


def _shape(number: int, shape: Any) -> _Shape:
    field = f"shapes[{number}]"
    _known(field, shape, _SHAPE)
    requests = {}
    for short, resource in _SHORT.items():
        if short in shape:
            requests[resource] = amount(shape[short], f"{field}.{short}")
    for resource, text in (shape.get("requests") or {}).items():
        requests[resource] = amount(text, f"{field}.requests.{resource}")
    count = whole(shape.get("pods", 1), f"{field}.pods", least=1)
    fewest = shape.get("minPods")
    run = shape.get("runSeconds")
    _known(f"{field}.runSeconds", run, {"median", "sigma"})
    return _Shape(
        not_negative(shape.get("weight", 1), f"{field}.weight"),
        pods(requests, count, None if fewest is None else whole(fewest, f"{field}.minPods")),
        whole(shape.get("priority", 0), f"{field}.priority"),
        not_negative(run.get("median"), f"{field}.runSeconds.median"),
        not_negative(run.get("sigma", 0), f"{field}.runSeconds.sigma"),
    )


def _known(field: str, entry: Any, keys: set[str]) -> None:
    if not isinstance(entry, Mapping):
        raise BadValue(field or "the file", "is not a mapping")
    for key in entry:
        if key not in keys:
            name = f"{field}.{key}".lstrip(".")
            raise BadValue(name, f"unknown key; known keys: {', '.join(sorted(keys))}")
