"""Synthetic work from a description in YAML, the same for the same seed.

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

from kueuelib.errors import ConfigError
from kueuelib.simulator.faults import BadValue, Faults
from kueuelib.simulator.parsing import amount, not_negative, whole
from kueuelib.simulator.readers.source import Source, whole_text
from kueuelib.simulator.work import CPU, GPU, MEMORY, Job, PodShape, pods

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


def read(path: Path, faults: Faults, source: Source, *, scale: float = 1.0) -> Iterator[Job]:
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


def _jobs(content: Mapping[str, Any], scale: float, prefix: str) -> Iterator[Job]:
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
        yield Job(
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
