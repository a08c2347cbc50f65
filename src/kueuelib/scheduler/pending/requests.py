"""The requests of one pod: LimitRanges, defaults, init containers, sidecars, overhead.

The pod template is never changed; defaults exist only in the numbers. Sums are exact;
`resource_rules` decides what counts, and rounds once per pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import attrs

from kueuelib.api.core import Container, LimitRange, LimitRangeItem, PodSpec, RuntimeClass
from kueuelib.api.kinds import LIMIT_RANGES, RUNTIME_CLASSES
from kueuelib.api.quantity import Quantity
from kueuelib.api.struct import frozen, json_name
from kueuelib.scheduler.object_reasons import GivenValue, ResourceProblem

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
    """The bounds for containers and for pods.

    Attributes:
        containers: those for each container.
        pods: those for each pod.
        limit_ranges: what they are made of, in the order of the names.
    """

    containers: Bounds = NO_BOUNDS
    pods: Bounds = NO_BOUNDS
    limit_ranges: tuple[LimitRange, ...] = ()

    def of(self, type: str) -> Bounds:
        """Those of items of a type."""
        return self.containers if type == CONTAINER else self.pods

    def values(self, type: str, bound: str, resources: Iterable[str]) -> tuple[GivenValue, ...]:
        """The values of LimitRanges that are in force as a bound, or as a default.

        Args:
            type: of the items.
            bound: the field of `Bounds`.
            resources: those that have this bound.
        """
        amounts: Nanos = getattr(self.of(type), bound)
        field = json_name(attrs.fields_dict(LimitRangeItem)[bound])
        first: dict[str, GivenValue] = {}
        for limit_range in self.limit_ranges:
            for place, item in enumerate(limit_range.spec.limits):
                for resource, quantity in getattr(item, bound).items():
                    if item.type == type and quantity.nanos == amounts[resource]:
                        path = f"spec.limits[{place}].{field}[{resource}]"
                        value = GivenValue(LIMIT_RANGES.kind, limit_range.key, path, str(quantity))
                        first.setdefault(resource, value)
        return tuple(first[name] for name in resources)


NO_LIMIT_RANGES = LimitSummary()


def nanos_of(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """Exact amounts; negative ones count as zero."""
    return {name: max(0, quantity.nanos) for name, quantity in quantities.items()}


def summarize(limit_ranges: Iterable[LimitRange]) -> LimitSummary:
    """The summary of all LimitRanges of one namespace; they are read in the order of their
    names.
    """
    ordered = sorted(limit_ranges, key=lambda each: each.name)
    return LimitSummary(_bounds(ordered, CONTAINER), _bounds(ordered, POD), tuple(ordered))


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
    """One container with its defaults filled in.

    Attributes:
        requests: the exact requests.
        limits: the exact limits.
        container: as it is stored.
    """

    requests: Nanos
    limits: Nanos
    container: Container

    @property
    def sidecar(self) -> bool:
        """Whether it is an init container that keeps running."""
        return self.container.restart_policy == _ALWAYS


@frozen
class PodRequest:
    """One pod of a pod set with all defaults filled in.

    Attributes:
        init: the init containers, sidecars included, in their order.
        containers: the containers.
        per_pod: the exact requests of one pod.
        added: what a RuntimeClass added, by resource.
    """

    init: tuple[ContainerRequest, ...]
    containers: tuple[ContainerRequest, ...]
    per_pod: Nanos
    added: Mapping[str, GivenValue] = attrs.field(factory=dict)


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
    overhead, added = spec.overhead, dict[str, GivenValue]()
    if not overhead and spec.runtime_class_name and runtime_class is not None:
        overhead = runtime_class.overhead.pod_fixed
        for name, quantity in overhead.items():
            path = f"overhead.podFixed[{name}]"
            kind, key = RUNTIME_CLASSES.kind, runtime_class.key
            added[name] = GivenValue(kind, key, path, str(quantity))
    for name, amount in nanos_of(overhead).items():
        per_pod[name] = per_pod.get(name, 0) + amount
    return PodRequest(init, containers, per_pod, added)


def _with_defaults(container: Container, bounds: Bounds) -> ContainerRequest:
    """Fills in defaults of the LimitRange, then limits in place of missing requests."""
    limits = {**bounds.default, **nanos_of(container.resources.limits)}
    requests = {**limits, **bounds.default_request, **nanos_of(container.resources.requests)}
    return ContainerRequest(requests, limits, container)


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


def excessive_requests(
    pod_set: str, request: PodRequest, limits: LimitSummary
) -> tuple[ResourceProblem, ...]:
    """The containers that request more than their limits."""
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
                values = _defaults(container.container, keys, limits)
                items.append(ResourceProblem(f"{path} requests exceed it's limits", values))
    return tuple(items)


def _defaults(
    container: Container, resources: Iterable[str], limits: LimitSummary
) -> tuple[GivenValue, ...]:
    """The values of LimitRanges that a container has as its limits, or as its requests."""
    own = container.resources
    bounds = limits.containers
    return (
        *limits.values(CONTAINER, "default", (one for one in resources if one not in own.limits)),
        *limits.values(
            CONTAINER,
            "default_request",
            (one for one in resources if one not in own.requests and one in bounds.default_request),
        ),
    )


def limit_range_violations(
    pod_set: str, request: PodRequest, limits: LimitSummary
) -> tuple[ResourceProblem, ...]:
    """The LimitRange bounds that a pod breaks."""
    if limits is NO_LIMIT_RANGES:
        return ()
    items: list[ResourceProblem] = []
    for kind, containers in (("initContainers", request.init), ("containers", request.containers)):
        for index, container in enumerate(containers):
            path = f"podSets.{pod_set}.{kind}[{index}]"
            items += _outside(path, container.requests, container.limits, limits, CONTAINER)
    items += _outside(f"podSets.{pod_set}", request.per_pod, {}, limits, POD, request.added)
    return tuple(items)


def _outside(
    path: str,
    requests: Nanos,
    limits: Nanos,
    summary: LimitSummary,
    type: str,
    added: Mapping[str, GivenValue] = MappingProxyType({}),
) -> list[ResourceProblem]:
    items, bounds = [], summary.of(type)
    above = sorted(
        name
        for name, most in bounds.max.items()
        if max(requests.get(name, 0), limits.get(name, 0)) > most
    )
    if above:
        broken = f"the requests of {path}[{', '.join(above)}] exceeds the limits"
        values = summary.values(type, "max", above)
        values += tuple(added[name] for name in above if name in added)
        items.append(ResourceProblem(broken, values))
    below = sorted(
        name
        for name, least in bounds.min.items()
        if (name in requests or name in limits)
        and min(amounts[name] for amounts in (requests, limits) if name in amounts) < least
    )
    if below:
        broken = f"the requests of {path}[{', '.join(below)}] are less than the limits"
        items.append(ResourceProblem(broken, summary.values(type, "min", below)))
    return items
