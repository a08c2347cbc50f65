"""The requests of one pod: LimitRanges, defaults, init containers, sidecars, overhead.

The pod template is never changed; defaults exist only in the numbers. Sums are exact;
`resource_rules` decides what counts, and rounds once per pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs

from kueuelib.api.core import Container, LimitRange, PodSpec, RuntimeClass
from kueuelib.api.quantity import Quantity
from kueuelib.api.struct import frozen

# ---- the LimitRanges of a namespace as one set of bounds and defaults ----------------------------

CONTAINER = "Container"
POD = "Pod"

Nanos = Mapping[str, int]
"""Resource name to an exact amount in billionths, the unit of `Quantity.nanos`."""


@frozen
class Bounds:
    """The combination of several LimitRange items of one type.

    Attributes:
        max: the lowest maximum per resource.
        min: the highest minimum.
        default: the first default limit.
        default_request: the first default request.
    """

    max: Nanos = attrs.field(factory=dict)
    min: Nanos = attrs.field(factory=dict)
    default: Nanos = attrs.field(factory=dict)
    default_request: Nanos = attrs.field(factory=dict)


NO_BOUNDS = Bounds()


@frozen
class LimitSummary:
    """The bounds for containers and for pods."""

    containers: Bounds = NO_BOUNDS
    pods: Bounds = NO_BOUNDS


NO_LIMIT_RANGES = LimitSummary()


def nanos_of(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """Exact amounts; negative ones count as zero."""
    return {name: max(0, quantity.nanos) for name, quantity in quantities.items()}


def summarize(limit_ranges: Iterable[LimitRange]) -> LimitSummary:
    """The summary of all LimitRanges of one namespace; they are read in the order of their
    names.
    """
    ordered = sorted(limit_ranges, key=lambda each: each.name)
    return LimitSummary(_bounds(ordered, CONTAINER), _bounds(ordered, POD))


def _bounds(limit_ranges: Iterable[LimitRange], type: str) -> Bounds:
    items = [item for each in limit_ranges for item in each.spec.limits if item.type == type]
    if not items:
        return NO_BOUNDS
    return Bounds(
        max=_merged((item.max for item in items), min),
        min=_merged((item.min for item in items), max),
        default=_merged((item.default for item in items), _first),
        default_request=_merged((item.default_request for item in items), _first),
    )


def _first(old: int, _: int) -> int:
    return old


def _merged(
    parts: Iterable[Mapping[str, Quantity]], choose: Callable[[int, int], int]
) -> dict[str, int]:
    result: dict[str, int] = {}
    for part in parts:
        for name, quantity in part.items():
            nanos = quantity.nanos
            result[name] = choose(result[name], nanos) if name in result else nanos
    return result


# --------------------------------------------------------------------------------------------------

_ALWAYS = "Always"


@frozen
class ContainerRequest:
    """One container with its defaults filled in."""

    requests: Nanos
    limits: Nanos
    sidecar: bool


@frozen
class PodRequest:
    """One pod of a pod set with all defaults filled in.

    Attributes:
        init: the init containers, sidecars included, in their order.
        containers: the containers.
        per_pod: the exact requests of one pod.
    """

    init: tuple[ContainerRequest, ...]
    containers: tuple[ContainerRequest, ...]
    per_pod: Nanos


def pod_request(
    spec: PodSpec, limits: LimitSummary, runtime_class: RuntimeClass | None
) -> PodRequest:
    """The requests of one pod of a template.

    Args:
        spec: the template's pod spec, as it is stored.
        limits: the LimitRanges of the namespace.
        runtime_class: the RuntimeClass that the spec names, if it exists.
    """
    init = tuple(_with_defaults(container, limits.containers) for container in spec.init_containers)
    containers = tuple(
        _with_defaults(container, limits.containers) for container in spec.containers
    )
    per_pod = _aggregate(init, containers)
    if spec.resources is not None:
        whole = nanos_of(spec.resources.requests)
        for name, amount in nanos_of(spec.resources.limits).items():
            if name not in per_pod:
                whole.setdefault(name, amount)
        per_pod.update(whole)
    overhead = spec.overhead
    if not overhead and spec.runtime_class_name and runtime_class is not None:
        overhead = runtime_class.overhead.pod_fixed
    for name, amount in nanos_of(overhead).items():
        per_pod[name] = per_pod.get(name, 0) + amount
    return PodRequest(init, containers, per_pod)


def _with_defaults(container: Container, bounds: Bounds) -> ContainerRequest:
    """Fills in defaults of the LimitRange, then limits in place of missing requests."""
    limits = {**bounds.default, **nanos_of(container.resources.limits)}
    requests = {**limits, **bounds.default_request, **nanos_of(container.resources.requests)}
    return ContainerRequest(requests, limits, sidecar=container.restart_policy == _ALWAYS)


def _aggregate(
    init: Iterable[ContainerRequest], containers: Iterable[ContainerRequest]
) -> dict[str, int]:
    """The most that the containers need at the same time.

    Sidecars keep running, so an ordinary init container runs beside the sidecars before it, and the
    containers run beside all sidecars.
    """
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in init:
        if container.sidecar:
            _add(sidecars, container.requests)
        else:
            _raise_to(peak, _sum(container.requests, sidecars))
    running = dict(sidecars)
    for container in containers:
        _add(running, container.requests)
    _raise_to(peak, running)
    return peak


def _add(total: dict[str, int], part: Nanos) -> None:
    for name, amount in part.items():
        total[name] = total.get(name, 0) + amount


def _sum(left: Nanos, right: Nanos) -> dict[str, int]:
    total = dict(left)
    _add(total, right)
    return total


def _raise_to(peak: dict[str, int], part: Nanos) -> None:
    for name, amount in part.items():
        peak[name] = max(peak.get(name, 0), amount)


def excessive_requests(pod_set: str, request: PodRequest) -> tuple[str, ...]:
    """The containers that request more than their limits, in the words of the condition message."""
    items = []
    for kind, containers in (("initContainers", request.init), ("containers", request.containers)):
        for index, container in enumerate(containers):
            keys = sorted(
                name
                for name, limit in container.limits.items()
                if container.requests.get(name, 0) > limit
            )
            if keys:
                path = f"podSets.{pod_set}.{kind}[{index}][{', '.join(keys)}]"
                items.append(f"{path} requests exceed it's limits")
    return tuple(items)


def limit_range_violations(
    pod_set: str, request: PodRequest, limits: LimitSummary
) -> tuple[str, ...]:
    """The LimitRange bounds that a pod breaks, in the words of the condition message."""
    if limits is NO_LIMIT_RANGES:
        return ()
    items: list[str] = []
    for kind, containers in (("initContainers", request.init), ("containers", request.containers)):
        for index, container in enumerate(containers):
            path = f"podSets.{pod_set}.{kind}[{index}]"
            items += _outside(path, container.requests, container.limits, limits.containers)
    items += _outside(f"podSets.{pod_set}", request.per_pod, {}, limits.pods)
    return tuple(items)


def _outside(path: str, requests: Nanos, limits: Nanos, bounds: Bounds) -> list[str]:
    items = []
    above = sorted(
        name
        for name, most in bounds.max.items()
        if max(requests.get(name, 0), limits.get(name, 0)) > most
    )
    if above:
        items.append(f"the requests of {path}[{', '.join(above)}] exceeds the limits")
    below = sorted(
        name
        for name, least in bounds.min.items()
        if (name in requests or name in limits)
        and min(amounts[name] for amounts in (requests, limits) if name in amounts) < least
    )
    if below:
        items.append(f"the requests of {path}[{', '.join(below)}] are less than the limits")
    return items
