"""What the annotations of a pod template ask of a topology (KEP-2724)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj
from kueuelib.api.names import (
    POD_SET_GROUP,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    SLICE_CONSTRAINTS,
    SLICE_LEVEL,
    SLICE_SIZE,
    TOPOLOGY_KEYS,
    UNCONSTRAINED_TOPOLOGY,
    is_go_bool,
)
from kueuelib.api.topology_keys import ignored_topology_keys
from kueuelib.api.validation.fields import qualified_name
from kueuelib.errors import FieldError
from kueuelib.jobs.contract.field_rules import forbidden, invalid

_KINDS: Final = (REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY, UNCONSTRAINED_TOPOLOGY)
_MOST_LAYERS: Final = 3
_DIGITS: Final = re.compile(r"([+-]?)0*([0-9]{1,10})", re.ASCII)


@attrs.frozen
class Ranks:
    """The labels from which the order of pods is read.

    Attributes:
        index: the label with the index of a pod, in its group if there are groups.
        group: the label with the index of its group; empty without groups.
        groups: how many groups there are; in a declaration, the path of this number.
    """

    index: str
    group: str = ""
    groups: str | int = ""

    def raw(self) -> Obj:
        """The fields of a `topologyRequest`."""
        fields: Obj = {"podIndexLabel": self.index} if self.index else {}
        if self.group:
            fields["subGroupIndexLabel"] = self.group
        if isinstance(self.groups, int):
            fields["subGroupCount"] = self.groups
        return fields


COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
BY_COMPLETION: Final = Ranks(COMPLETION_INDEX)
"""Pods of a Job with the completion mode Indexed."""


def asking_annotations(template: Any) -> Mapping[str, str]:
    """The annotations of a raw pod template that say where its pods may be placed."""
    meta = template.get("metadata") if isinstance(template, Mapping) else None
    notes = meta.get("annotations") if isinstance(meta, Mapping) else None
    if not isinstance(notes, Mapping):
        return {}
    return {key: notes[key] for key in TOPOLOGY_KEYS & notes.keys() if isinstance(notes[key], str)}


def topology_request(annotations: Mapping[str, str], ranks: Ranks | None) -> Obj | None:
    """The raw `topologyRequest` of a pod set; None if nothing is known about it.

    An annotation that no webhook would admit leads to a request that nothing meets, so that its
    Workload waits.

    Args:
        annotations: of the pod template.
        ranks: how pods of its kind are ranked.
    """
    request: Obj = {}
    if asked := TOPOLOGY_KEYS & annotations.keys():
        request = _kind_of_request(annotations)
        if SLICE_CONSTRAINTS in asked:
            layers = _layers(annotations[SLICE_CONSTRAINTS])
            if layers is None:
                request["podSetSliceRequiredTopology"] = ""
            else:
                request["podsetSliceRequiredTopologyConstraints"] = layers
        elif {SLICE_LEVEL, SLICE_SIZE} <= asked:
            request["podSetSliceRequiredTopology"] = annotations[SLICE_LEVEL]
            if size := _size(annotations[SLICE_SIZE]):
                request["podSetSliceSize"] = size
        if POD_SET_GROUP in asked and asked & {REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY}:
            request["podSetGroupName"] = annotations[POD_SET_GROUP]
    if ranks is not None:
        request |= ranks.raw()
    return request or None


def _kind_of_request(annotations: Mapping[str, str]) -> Obj:
    if REQUIRED_TOPOLOGY in annotations:
        return {"required": annotations[REQUIRED_TOPOLOGY]}
    if PREFERRED_TOPOLOGY in annotations:
        return {"preferred": annotations[PREFERRED_TOPOLOGY]}
    if UNCONSTRAINED_TOPOLOGY in annotations:
        return {"unconstrained": is_go_bool(annotations[UNCONSTRAINED_TOPOLOGY]) is True}
    return {}


def _number(text: str) -> int | None:
    """The result of Go's `ParseInt` with 32 bits; None if it cannot be parsed."""
    parts = _DIGITS.fullmatch(text)
    if parts is None:
        return None
    number = int("".join(parts.groups()))
    return number if -(2**31) <= number < 2**31 else None


def _size(text: str) -> int:
    """The number of pods of a slice; 0 if there is none."""
    return max(0, _number(text) or 0)


def _layers(text: str) -> list[Obj] | None:
    """The slices within slices; None if they are not written as such."""
    try:
        layers = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(layers, list) or not 0 < len(layers) <= _MOST_LAYERS:
        return None
    if not all(isinstance(one, dict) and _is_layer(one) for one in layers):
        return None
    return [{"topology": one["topology"], "size": one["size"]} for one in layers]


def _is_layer(layer: Mapping[str, Any]) -> bool:
    return isinstance(layer.get("topology"), str) and type(layer.get("size")) is int


def ignored_requests(
    metadata: Mapping[str, Any], templates: Iterable[tuple[str, Any]]
) -> Iterator[str]:
    """Requests of an object for a topology that have no effect, as sentences for people.

    Args:
        metadata: of the object, which is not a pod.
        templates: pairs of a field path and the raw pod template there.
    """
    for one in ignored_topology_keys(metadata, of_pods=False):
        yield one.text("metadata")
    for path, template in templates:
        meta = template.get("metadata") if isinstance(template, Mapping) else None
        for one in ignored_topology_keys(meta if isinstance(meta, Mapping) else {}, of_pods=True):
            yield one.text(f"{path}.metadata")


# ---- the rules about these annotations -----------------------------------------------------------


def topology_errors(
    path: str, annotations: Mapping[str, str], count: int | None = None
) -> Iterator[FieldError]:
    """What is wrong with the annotations of a pod template.

    Args:
        path: of these annotations.
        annotations: of the template.
        count: how many pods there are; None if that is not known.
    """
    asked = TOPOLOGY_KEYS & annotations.keys()
    if not asked:
        return
    if len(asked & {*_KINDS}) > 1:
        named = ", ".join(f'"{key}"' for key in _KINDS)
        detail = f"must not contain more than one topology annotation: [{named}]"
        yield FieldError(path, "FieldValueInvalid", f"Invalid value: {detail}")
    for key in (REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY, SLICE_LEVEL):
        if key in asked:
            yield from qualified_name(_at(path, key), annotations[key])
    text = annotations.get(UNCONSTRAINED_TOPOLOGY)
    if text is not None and is_go_bool(text) is None:
        yield invalid(_at(path, UNCONSTRAINED_TOPOLOGY), text, "must be a boolean value")
    if POD_SET_GROUP in asked:
        yield from _group_errors(path, annotations)
    yield from _slice_errors(path, annotations, count)
    if SLICE_CONSTRAINTS in asked:
        yield from _constraint_errors(path, annotations, count)


def _at(path: str, key: str) -> str:
    return f"{path}[{key}]"


def _group_errors(path: str, annotations: Mapping[str, str]) -> Iterator[FieldError]:
    where, name = _at(path, POD_SET_GROUP), annotations[POD_SET_GROUP]
    if name.isascii() and name.isdigit():
        yield invalid(where, name, "must not be a number")
    for key in (SLICE_SIZE, SLICE_LEVEL, SLICE_CONSTRAINTS):
        if key in annotations:
            yield forbidden(where, f"may not be set when '{key}' is specified")
    if not annotations.keys() & {PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY}:
        neither = f"neither '{PREFERRED_TOPOLOGY}' nor '{REQUIRED_TOPOLOGY}'"
        detail = f"may not be set when {neither} is specified"
        yield forbidden(where, detail)


def _slice_errors(
    path: str, annotations: Mapping[str, str], count: int | None
) -> Iterator[FieldError]:
    where, text = _at(path, SLICE_SIZE), annotations.get(SLICE_SIZE)
    if text is None:
        if SLICE_LEVEL in annotations:
            detail = f"must be set when '{SLICE_LEVEL}' is specified"
            yield FieldError(where, "FieldValueRequired", f"Required value: {detail}")
        return
    if SLICE_LEVEL not in annotations:
        yield forbidden(where, f"may not be set when '{SLICE_LEVEL}' is not specified")
    size = _number(text)
    if size is None:
        yield invalid(where, text, "must be a numeric value")
        return
    yield from _size_errors(where, size, count)


def _size_errors(where: str, size: int, count: int | None) -> Iterator[FieldError]:
    """Slices that do not divide the pods would leave some of them without a place."""
    if size < 1:
        yield invalid(where, size, "must be greater than or equal to 1")
    elif count is not None and size > count:
        yield invalid(where, size, f"must not be greater than pod set count {count}")
    elif count is not None and count % size:
        yield invalid(where, size, f"must evenly divide the pod set count {count}")


def _constraint_errors(
    path: str, annotations: Mapping[str, str], count: int | None
) -> Iterator[FieldError]:
    where, text = _at(path, SLICE_CONSTRAINTS), annotations[SLICE_CONSTRAINTS]
    for key in (SLICE_LEVEL, SLICE_SIZE):
        if key in annotations:
            yield forbidden(where, f"may not be set when '{key}' is specified")
    layers = _layers(text)
    if layers is None:
        detail = (
            f"must be a valid JSON array: it has 1 to {_MOST_LAYERS} entries such as "
            '{"topology": "example.com/rack", "size": 4}'
        )
        yield invalid(where, text, detail)
        return
    known: dict[str, int] = {}
    above = 0
    for index, layer in enumerate(layers):
        here, level, size = f"{where}[{index}]", layer["topology"], layer["size"]
        yield from qualified_name(f"{here}.topology", level)
        if level in known:
            detail = f'Duplicate value: "{level} (also at index {known[level]})"'
            yield FieldError(f"{here}.topology", "FieldValueDuplicate", detail)
        known.setdefault(level, index)
        yield from _size_errors(f"{here}.size", size, None if index else count)
        if index and size > 0 and above % size:
            detail = f"must evenly divide the parent layer size {above}"
            yield invalid(f"{here}.size", size, detail)
        above = size


@attrs.frozen
class _Member:
    """A pod set: the path of its annotations, these, and how many pods it has."""

    path: str
    annotations: Mapping[str, str]
    count: int


def errors_of_pod_sets(pod_sets: Iterable[tuple[str, Any, int]]) -> Iterator[FieldError]:
    """What is wrong with the annotations of all pod sets of a job.

    Args:
        pod_sets: for each, the path of its template, the raw template, and the number of pods.
    """
    members = [
        _Member(f"{path}.metadata.annotations", notes, count)
        for path, template, count in pod_sets
        if (notes := asking_annotations(template))
    ]
    for one in members:
        yield from topology_errors(one.path, one.annotations, one.count)
    groups: dict[str, list[_Member]] = {}
    for one in members:
        if POD_SET_GROUP in one.annotations and one.annotations.keys() & {
            REQUIRED_TOPOLOGY,
            PREFERRED_TOPOLOGY,
        }:
            groups.setdefault(one.annotations[POD_SET_GROUP], []).append(one)
    for name, members in groups.items():
        if len(members) != 2:
            detail = f"can only define groups of exactly 2 pod sets, got: {len(members)} pod set(s)"
            yield from (invalid(_at(one.path, POD_SET_GROUP), name, detail) for one in members)
            continue
        first, second = members
        if 1 not in (first.count, second.count):
            detail = (
                "can only define groups where at least one pod set has only 1 replica, got: "
                f"{first.count} replica(s) and {second.count} replica(s) in the group"
            )
            yield from (invalid(_at(one.path, POD_SET_GROUP), name, detail) for one in members)
        if _kind_of_request(first.annotations) != _kind_of_request(second.annotations):
            for one, other in ((first, second), (second, first)):
                detail = (
                    f"must specify '{REQUIRED_TOPOLOGY}' or '{PREFERRED_TOPOLOGY}' topology "
                    f"consistent with '{other.path}' in group '{name}'"
                )
                yield FieldError(one.path, "FieldValueInvalid", f"Invalid value: {detail}")
