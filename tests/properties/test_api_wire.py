"""Raw objects of every kind, with unknown fields everywhere: codec and conversion lose nothing."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Union, get_args, get_origin

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kueuelib.api.batch import Job
from kueuelib.api.codec import decode, encode
from kueuelib.api.conversion import convert
from kueuelib.api.core import Event, Lease, LimitRange, Namespace, Node, Pod, RuntimeClass
from kueuelib.api.kinds import KUEUE
from kueuelib.api.kueue import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ProvisioningRequestConfig,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
from kueuelib.api.meta import format_micro_time, format_time
from kueuelib.api.quantity import Quantity
from kueuelib.api.struct import MicroTime, Struct, Time, WireField, json_name

QUEUEING = [
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Workload,
    AdmissionCheck,
    WorkloadPriorityClass,
    ProvisioningRequestConfig,
    Topology,
]
OTHERS = [Job, Pod, Node, Namespace, LimitRange, RuntimeClass, Lease, Event]

SLOW = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

words = st.text("abcxyz-.", min_size=1, max_size=6)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
unknown = st.dictionaries(words.map(lambda word: "x-" + word), anything, max_size=2)


@st.composite
def structs(draw, cls: type, *, depth: int = 6):
    """A raw struct without values that mean the same as nothing, and with unknown fields."""
    found = {}
    for field in attrs.fields(attrs.resolve_types(cls)):
        if field.name == "extra":
            continue
        wire = field.metadata.get("wire") or WireField()
        wanted = wire.required or field.default is attrs.NOTHING
        if wanted or (depth > 0 and draw(st.booleans())):
            found[json_name(field)] = draw(values(field.type, wire, depth - 1))
    found |= draw(unknown)
    found["x-marker"] = draw(st.integers(0, 3))  # so that no struct is equal to its default
    return found


def values(kind, wire: WireField, depth: int):
    if "enum" in wire.schema:
        return st.sampled_from([value for value in wire.schema["enum"] if value])
    if kind == Time:
        return st.integers(1, 2**31).map(format_time)
    if kind == MicroTime:
        return st.integers(1, 2**31).map(lambda second: format_micro_time(second + 0.25))
    if kind is Quantity:
        return st.integers(1, 10**6).map(lambda milli: str(Quantity.of_milli(milli)))
    if kind is bool:
        return st.just(value=True)
    if kind is int:
        return st.integers(1, 10**6)
    if kind is str:
        return words
    if isinstance(kind, type) and issubclass(kind, Struct):
        return structs(kind, depth=depth)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return values(next(one for one in arguments if one is not NoneType), wire, depth)
    if origin is tuple:
        items = values(arguments[0], WireField(), depth)
        keys = wire.schema.get("x-kubernetes-list-map-keys")
        unique = (lambda item: tuple(item.get(key) for key in keys)) if keys else None
        return st.lists(items, min_size=1, max_size=2, unique_by=unique)
    if origin is not None and issubclass(origin, Mapping):
        inner = words if arguments[1] is object else values(arguments[1], WireField(), depth)
        return st.dictionaries(words, inner, min_size=1, max_size=2)
    return words


def objects(cls: type):
    head = {"apiVersion": cls.resource.api_version, "kind": cls.resource.kind}
    return structs(cls).map(lambda found: {**head, **found})


def inside(part, whole) -> bool:
    """Whether everything of a raw value is in another, which may have more fields."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and inside(value, whole[key]) for key, value in part.items()
        )
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(inside, part, whole))
    return part == whole


@pytest.mark.parametrize("cls", QUEUEING + OTHERS)
@SLOW
@given(data=st.data())
def test_decoding_and_encoding_keeps_every_field(cls, data):
    raw = data.draw(objects(cls))
    before = copy.deepcopy(raw)
    value = decode(cls, raw)
    again = encode(value)
    assert inside(raw, again)
    assert decode(cls, again) == value
    assert raw == before


@pytest.mark.parametrize("cls", QUEUEING)
@SLOW
@given(data=st.data())
def test_both_versions_decode_to_the_same_value(cls, data):
    raw = data.draw(objects(cls))
    value = decode(cls, raw)
    old = convert(raw, "v1beta1")
    assert decode(cls, old) == value
    assert inside(old, encode(value, "v1beta1"))


@pytest.mark.parametrize("cls", QUEUEING)
@SLOW
@given(data=st.data())
def test_to_v1beta1_and_back_is_the_same_object(cls, data):
    raw = data.draw(objects(cls))
    before = copy.deepcopy(raw)
    old = convert(raw, "v1beta1")
    assert old["apiVersion"] == f"{KUEUE}/v1beta1"
    assert convert(old, "v1beta2") == raw
    assert raw == before


@st.composite
def old_cluster_queues(draw):
    spec = draw(unknown)
    if draw(st.booleans()):
        spec["cohort"] = draw(words)
    if draw(st.booleans()):
        spec["admissionChecks"] = draw(st.lists(words, min_size=1, max_size=3, unique=True))
    if draw(st.booleans()):
        spec["flavorFungibility"] = {
            "whenCanBorrow": draw(st.sampled_from(["Borrow", "TryNextFlavor"])),
            "whenCanPreempt": draw(st.sampled_from(["Preempt", "TryNextFlavor"])),
            **draw(unknown),
        }
    return {"kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec, **draw(unknown)}


@st.composite
def old_workloads(draw):
    spec = draw(unknown)
    if draw(st.booleans()):
        spec["priorityClassName"] = draw(words)
    if draw(st.booleans()):
        sources = ["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass"]
        spec["priorityClassSource"] = draw(st.sampled_from(sources))
    status = draw(unknown)
    if draw(st.booleans()):
        status["accumulatedPastExexcutionTimeSeconds"] = 7
    return {"kind": "Workload", "metadata": {"name": "w"}, "spec": spec, "status": status}


@st.composite
def old_local_queues(draw):
    status = {**draw(unknown), "flavorUsage": draw(anything), "flavors": draw(anything)}
    return {"kind": "LocalQueue", "metadata": {"name": "l"}, "spec": {}, "status": status}


@given(old_cluster_queues() | old_workloads() | old_local_queues())
def test_to_v1beta2_and_back_is_the_same_object(raw):
    raw["apiVersion"] = f"{KUEUE}/v1beta1"
    before = copy.deepcopy(raw)
    new = convert(raw, "v1beta2")
    assert raw == before
    assert convert(new, "v1beta1") == raw
