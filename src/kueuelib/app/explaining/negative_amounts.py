"""Negative amounts in manifests, which no server accepts in a pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.api.quantity import Quantity
from kueuelib.api.validation.fields import NOT_NEGATIVE, each, invalid
from kueuelib.errors import FieldError

_NOTHING = Quantity.parse(0)


def negative_amounts(pod: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Negative requests, limits and overhead.

    Args:
        pod: the raw spec of a pod, with quantities that can be read.
        path: where it is, for example `spec.template.spec`.
    """
    for field in ("containers", "initContainers"):
        for place, container in each(pod, field, path):
            yield from _of_resources(container.get("resources"), f"{place}.resources")
    yield from _of_resources(pod.get("resources"), f"{path}.resources")
    yield from _of_amounts(pod.get("overhead"), f"{path}.overhead")


def negative_counts(parent: Mapping[str, Any], path: str, *names: str) -> Iterator[FieldError]:
    """Negative numbers of pods.

    Args:
        parent: the object with the fields.
        path: its own path.
        names: the fields.
    """
    for name in names:
        value = parent.get(name)
        if value is not None and value < 0:
            yield invalid(f"{path}.{name}", value, NOT_NEGATIVE)


def _of_resources(resources: Obj | None, path: str) -> Iterator[FieldError]:
    for field in ("limits", "requests"):
        yield from _of_amounts((resources or {}).get(field), f"{path}.{field}")


def _of_amounts(amounts: Obj | None, path: str) -> Iterator[FieldError]:
    for name, value in (amounts or {}).items():
        if Quantity.parse(value) < _NOTHING:
            yield invalid(f"{path}[{name}]", value, NOT_NEGATIVE)
