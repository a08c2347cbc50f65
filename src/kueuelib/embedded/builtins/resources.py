"""The rules for `resources` of containers, totals, and the QoS class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.api.quantity import Quantity
from kueuelib.embedded.builtins.fields import NON_NEGATIVE, invalid, listed, required, section
from kueuelib.embedded.builtins.metadata import qualified_name
from kueuelib.errors import FieldError, InvalidQuantity

CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
HUGE_PAGES = "hugepages-"
_SUFFIX_TEXT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


def amount(value: Any) -> Quantity | None:
    """The quantity, or None if it is not valid."""
    try:
        return Quantity.parse(value)
    except InvalidQuantity:
        return None


@lru_cache(4096)
def canonical(value: str | float) -> str:
    """A quantity in the canonical form of the server: `1`, not `1000m`."""
    return str(Quantity.parse(value))


def is_native(name: str) -> bool:
    """Whether Kubernetes itself defines the resource, as opposed to an extended one."""
    return "/" not in name or "kubernetes.io/" in name


def overcommits(name: str) -> bool:
    """Whether limits may exceed requests."""
    return is_native(name) and not name.startswith(HUGE_PAGES)


def parsed(amounts: Mapping[str, Any]) -> dict[str, Quantity]:
    """The quantities of raw amounts."""
    return {name: Quantity.parse(value) for name, value in amounts.items()}


def _name_errors(name: str, path: str) -> list[FieldError]:
    texts = qualified_name(name)
    if "/" not in name and name not in STANDARD and not name.startswith(HUGE_PAGES):
        texts += [] if texts else ["must be a standard resource type or fully qualified"]
        texts.append("must be a standard resource for containers")
    return [invalid(path, name, text) for text in texts]


def _amount_errors(name: str, value: Any, path: str) -> list[FieldError]:
    quantity = amount(value)
    if quantity is None:
        return [invalid(path, value, _SUFFIX_TEXT)]
    if quantity < Quantity.parse(0):
        return [invalid(path, value, NON_NEGATIVE)]
    if not is_native(name) and quantity.milli() % 1000:
        return [invalid(path, value, "must be an integer")]
    return []


def validate_resources(resources: Mapping[str, Any], path: str) -> list[FieldError]:
    """Check names, amounts, and requests that exceed their limits."""
    requests, limits = section(resources, "requests"), section(resources, "limits")
    errors = []
    bad = set()
    for what, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            entry_errors = _name_errors(name, f"{path}.{what}[{name}]")
            entry_errors += _amount_errors(name, value, f"{path}.{what}[{name}]")
            if entry_errors:
                bad.add(name)
            errors += entry_errors
    for name, value in requests.items():
        if name in bad:
            continue
        if name not in limits:
            if not overcommits(name):
                text = "Limit must be set for non overcommitable resources"
                errors.append(required(f"{path}.limits", text))
            continue
        request, limit = Quantity.parse(value), Quantity.parse(limits[name])
        if overcommits(name):
            if request > limit:
                text = f"must be less than or equal to {name} limit of {limits[name]}"
                errors.append(invalid(f"{path}.requests", value, text))
        elif request != limit:
            text = f"must be equal to {name} limit of {limits[name]}"
            errors.append(invalid(f"{path}.requests", value, text))
    return errors


def containers_of(spec: Mapping[str, Any]) -> Iterator[Obj]:
    """The containers and init containers."""
    yield from listed(spec, "containers")
    yield from listed(spec, "initContainers")


def is_sidecar(init_container: Mapping[str, Any]) -> bool:
    """Whether an init container continues running beside the others."""
    return init_container.get("restartPolicy") == "Always"


def pod_requests(spec: Mapping[str, Any]) -> dict[str, Quantity]:
    """The total requests of a pod: containers, init containers, sidecars, overhead."""
    total: dict[str, Quantity] = {}
    for container in listed(spec, "containers"):
        _add(total, parsed(section(container, "resources", "requests")))
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in listed(spec, "initContainers"):
        here = dict(sidecars)
        _add(here, parsed(section(container, "resources", "requests")))
        if is_sidecar(container):
            sidecars = here
        _raise_to(peak, here)
    _add(total, sidecars)
    _raise_to(total, peak)
    _add(total, parsed(section(spec, "overhead")))
    return total


def _add(total: dict[str, Quantity], more: Mapping[str, Quantity]) -> None:
    for name, value in more.items():
        total[name] = total[name] + value if name in total else value


def _raise_to(total: dict[str, Quantity], least: Mapping[str, Quantity]) -> None:
    for name, value in least.items():
        if name not in total or total[name] < value:
            total[name] = value


def qos_class(spec: Mapping[str, Any]) -> str:
    """`Guaranteed`, `Burstable` or `BestEffort`."""
    guaranteed = True
    anything = False
    for container in containers_of(spec):
        resources = section(container, "resources")
        requests, limits = section(resources, "requests"), section(resources, "limits")
        for name in ("cpu", "memory"):
            claimed, exact = _claim(requests.get(name, 0), limits.get(name, 0))
            anything = anything or claimed
            guaranteed = guaranteed and exact
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


@lru_cache(maxsize=1024)
def _claim(request: Any, limit: Any) -> tuple[bool, bool]:
    """Whether there is a request or a limit, and whether both are equal."""
    zero, requested, limited = map(Quantity.parse, (0, request, limit))
    claimed = requested > zero or limited > zero
    return claimed, limited > zero and requested in (zero, limited)
