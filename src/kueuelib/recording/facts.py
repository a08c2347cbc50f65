"""Converts facts to JSON and back, with only those parts of objects that decisions depend on.

Only fields that the API classes know are written, except those listed below. So unused data is left
out: environments, commands, images, annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, get_args, get_origin

import attrs
import orjson
from cattrs import Converter
from cattrs.gen import make_dict_unstructure_fn, override

from kueuelib.api import core, kueue, pods
from kueuelib.api.codec import decode
from kueuelib.api.kueue import Admission
from kueuelib.api.meta import Obj, ObjectKey, ObjectMeta, format_time
from kueuelib.api.names import QUOTA_RESERVED
from kueuelib.api.quantity import Quantity
from kueuelib.api.struct import MicroTime, Struct, Time, json_name
from kueuelib.api.workload import (
    AdmissionCheckState,
    PodSetUpdate,
    WorkloadSpec,
    WorkloadStatus,
)
from kueuelib.api.workload_state import is_finished
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle_values import Admit, Plan, Wait
from kueuelib.scheduler.decide.preemption.victims import PendingPreemption
from kueuelib.scheduler.events import Event
from kueuelib.scheduler.object_reasons import REPORTED
from kueuelib.scheduler.topology.nodes import NodeFacts

# ---- plans as short JSON whose words stay the same from version to version -----------------------
# Parts that follow from the facts are left out: amounts, messages, waiting times.

DIGITS = 16
"""Hexadecimal digits of a hash that are written."""


def plan_data(plan: Plan) -> Obj:
    """A plan as JSON, without empty parts.

    `admit`: workload, ClusterQueue, pod sets with their counts and flavors, and with their domains
    if they have any, whether it is admitted at once, and how far up the tree it borrows.
    `preempt`: workload, and its victims with the reasons. `wait`: workload, ClusterQueue, reason,
    and where it is queued.
    """
    return {
        name: part
        for name, part in (
            ("admit", list(map(_admit, plan.admissions))),
            ("preempt", list(map(_preempt, plan.preemptions))),
            ("wait", list(map(_wait, plan.waits))),
        )
        if part
    }


def preemptions_data(preemptions: tuple[PendingPreemption, ...]) -> Obj:
    """The same for preemptions outside a cycle."""
    return {"preempt": list(map(_preempt, preemptions))} if preemptions else {}


def plan_hash(before: str, data: Obj) -> str:
    """The hash of a plan and of all plans before it.

    Args:
        before: the hash of the plan before; empty for the first one.
        data: the plan as JSON.
    """
    text = before.encode() + orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
    return sha256(text).hexdigest()[:DIGITS]


def _admit(admit: Admit) -> list[object]:
    sets = _sets(admit.admission)
    return [str(admit.key), admit.cluster_queue, sets, admit.admitted, admit.borrowing]


def _sets(admission: Admission) -> list[object]:
    sets: list[object] = []
    for one in admission.pod_set_assignments:
        chosen: list[object] = [one.name, one.count, dict(sorted(one.flavors.items()))]
        placed = one.topology_assignment
        if placed is not None:
            chosen.append([[list(values), count] for values, count in placed.domains])
        sets.append(chosen)
    return sets


def _preempt(preemption: PendingPreemption) -> list[object]:
    victims = [[str(victim.key), victim.path.value] for victim in preemption.victims]
    return [str(preemption.key), victims]


def _wait(wait: Wait) -> list[object]:
    reason = type(wait.reason).__name__
    return [str(wait.key), wait.cluster_queue, reason, wait.requeue.name]


# --------------------------------------------------------------------------------------------------

META = ("name", "namespace", "uid", "generation", "creation_timestamp", "deletion_timestamp")
_KEPT: Mapping[type[Struct], tuple[str, ...]] = {
    ObjectMeta: (*META, "labels"),
    pods.Container: ("resources", "restart_policy"),
    pods.PodTemplateSpec: ("spec",),
    pods.PodSpec: (
        *("containers", "init_containers", "node_selector", "affinity", "tolerations"),
        *("runtime_class_name", "overhead", "resources", "active_deadline_seconds"),
    ),
    kueue.ClusterQueue: ("metadata", "spec"),
    kueue.Cohort: ("metadata", "spec"),
    kueue.LocalQueueStatus: ("fair_sharing",),
    PodSetUpdate: ("name", "node_selector", "tolerations"),
    core.RuntimeClass: ("metadata", "overhead"),
    kueue.AdmissionCheckSpec: ("controller_name", "retry_delay_minutes", "preemption_policy"),
}
"""By class, the only fields that are written."""

_DROPPED: Mapping[type[Struct], tuple[str, ...]] = {
    WorkloadSpec: ("priority_class_ref",),
    AdmissionCheckState: ("message", "reason"),
}
"""By class, the fields that are not written."""

_NO_STATUS = WorkloadStatus()

_CLASSES: Mapping[type[Any], type[Struct]] = {
    events.ClusterQueueSet: kueue.ClusterQueue,
    events.CohortChanged: kueue.Cohort,
    events.LocalQueueSet: kueue.LocalQueue,
    events.FlavorSet: kueue.ResourceFlavor,
    events.CheckSet: kueue.AdmissionCheck,
    events.LimitRangeSet: core.LimitRange,
    events.RuntimeClassSet: core.RuntimeClass,
    events.WorkloadSet: kueue.Workload,
}
"""The class of the object in every fact that has one; it is the fact's only field."""

REVISION = "kueuelib.dev/revision"
"""The field with the number of a spec."""

KINDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}
"""Every fact by the name that it has in a recording."""


_SUBJECTS: Mapping[type[Any], str] = {
    kind: name.removesuffix(ending)
    for name, kind in KINDS.items()
    for ending in ("Set", "Gone", "Changed", "Deleted")
    if name.endswith(ending)
}


class BadFact(Exception):
    """A fact that cannot be read.

    Attributes:
        field: the field at fault, empty for the whole.
        reason: what is wrong with it.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


def fact_data(event: Event) -> Any:
    """A fact as JSON: the object, the name or the key that it is about, or a mapping of these."""
    kind = type(event)
    fields = attrs.fields(kind)
    if isinstance(event, events.WorkloadSet):
        return workload_data(event.workload, None, 0)
    if isinstance(event, events.NodeSet):
        taints = list(map(_converter.unstructure, event.node.taints))
        return {**attrs.asdict(event.node, recurse=False), "taints": taints}
    values = {field.name: _data(getattr(event, field.name)) for field in fields}
    return next(iter(values.values())) if len(values) == 1 else values


def workload_data(workload: kueue.Workload, before: kueue.Workload | None, number: int) -> Obj:
    """A Workload as JSON, without its spec if that did not change.

    A spec may change in a field that is not written. So a new spec carries a number, by which the
    engine sees that it differs.

    Args:
        workload: the object.
        before: the last state of the Workload; None if it was not known.
        number: a different one for every call.
    """
    data: Obj = {"metadata": _converter.unstructure(workload.metadata)}
    if before is None or before.uid != workload.uid:
        data["spec"] = _converter.unstructure(workload.spec)
    elif before.spec != workload.spec:
        data["spec"] = {**_converter.unstructure(workload.spec), REVISION: number}
    if workload.status != _NO_STATUS:
        data["status"] = _status(workload.status)
    return data


def _status(status: WorkloadStatus) -> Obj:
    """Keeps only the condition message that the scheduler compares with its verdict."""
    data: Obj = _converter.unstructure(status)
    for condition in data.get("conditions", ()):
        if condition["type"] != QUOTA_RESERVED or condition.get("reason") not in REPORTED:
            condition.pop("message", None)
    return data


def subject_of(event: Event) -> tuple[str, ObjectKey] | None:
    """The object that a fact is about: a word for the kind, and the key; None if there is none."""
    if isinstance(event, events.ForeignPod):
        return "ForeignPod", event.key
    if isinstance(event, events.Unreadable):
        return "Unreadable", ObjectKey("", event.kind)
    word = _SUBJECTS.get(type(event))
    if word is None:
        return None
    (field, *_) = attrs.fields(type(event))
    value = getattr(event, field.name)
    if isinstance(value, str):
        return word, ObjectKey("", value)
    if isinstance(value, NodeFacts):
        return word, ObjectKey("", value.name)
    return word, value if isinstance(value, ObjectKey) else value.key


def is_last(event: Event) -> bool:
    """Whether a fact is the last one about its object."""
    if isinstance(event, events.WorkloadSet):
        return is_finished(event.workload)
    if isinstance(event, events.ForeignPod):
        return event.request is None
    if isinstance(event, events.Unreadable):
        return not event.why
    return type(event).__name__.endswith(("Gone", "Deleted"))


def fact_of(kind: str, data: Any, known: Callable[[ObjectKey], kueue.Workload | None]) -> Event:
    """A fact from JSON.

    Args:
        kind: the name of its class.
        data: the result of `fact_data`.
        known: the Workloads, for one that is written without its spec.

    Raises:
        BadFact: it is not a fact.
        InvalidObject: its object cannot be read.
    """
    event_type = KINDS.get(kind)
    if event_type is None:
        raise BadFact("fact", f"{kind!r} is not a known kind of fact")
    cls = _CLASSES.get(event_type)
    if cls is kueue.Workload:
        return events.WorkloadSet(_workload(data, known))
    if event_type is events.NodeSet:
        return events.NodeSet(_node(data))
    if cls is not None:
        return event_type(decode(cls, data))  # type: ignore[no-any-return]
    fields = attrs.fields(attrs.resolve_types(event_type))
    values = {fields[0].name: data} if len(fields) == 1 else data
    if not isinstance(values, dict) or set(values) != {field.name for field in fields}:
        names = ", ".join(field.name for field in fields)
        raise BadFact("of", f"is not an object with {names}")
    return event_type(**{field.name: _value(field, values[field.name]) for field in fields})  # type: ignore[no-any-return]


def _workload(data: Any, known: Callable[[ObjectKey], kueue.Workload | None]) -> kueue.Workload:
    workload = decode(kueue.Workload, data)
    if "spec" in data:
        return workload
    before = known(workload.key)
    if before is None or before.uid != workload.uid:
        raise BadFact("of.spec", f"Workload {workload.key} was never seen with a spec")
    return attrs.evolve(workload, spec=before.spec)


def _node(data: Any) -> NodeFacts:
    kinds = {
        "name": str,
        "labels": dict,
        "taints": list,
        "capacity": dict,
        "ready": bool,
        "cordoned": bool,
    }
    if not isinstance(data, dict) or set(data) != set(kinds):
        raise BadFact("of", f"is not an object with {', '.join(kinds)}")
    for name, kind in kinds.items():
        if not isinstance(data[name], kind):
            raise BadFact(f"of.{name}", f"{data[name]!r} has the wrong type")
    if not all(isinstance(text, str) for text in data["labels"].values()):
        raise BadFact("of.labels", "has values that are not texts")
    taints = tuple([decode(core.Taint, one) for one in data["taints"]])
    return NodeFacts(**{**data, "taints": taints, "capacity": _amounts("capacity", data)})


def _amounts(field: str, data: Mapping[str, Any]) -> Mapping[str, int]:
    amounts: Mapping[str, int] = data[field]
    if not all(type(amount) is int for amount in amounts.values()):
        raise BadFact(f"of.{field}", "has amounts that are not whole numbers")
    return amounts


def _value(field: attrs.Attribute[Any], data: Any) -> Any:
    if field.type is ObjectKey:
        if isinstance(data, list) and len(data) == 2 and all(isinstance(one, str) for one in data):
            return ObjectKey(*data)
        raise BadFact(f"of.{field.name}", "is not a list of namespace and name")
    if isinstance(field.type, type) and issubclass(field.type, Struct):
        return decode(field.type, data)
    if field.type is str and isinstance(data, str):
        return data
    if field.name == "request":
        if data is None:
            return None
        if isinstance(data, dict):
            return _amounts(field.name, {field.name: data})
    if field.type is not str and isinstance(data, dict):
        return data
    raise BadFact(f"of.{field.name}", f"{data!r} has the wrong type")


def _data(value: Any) -> Any:
    if isinstance(value, Struct):
        return _converter.unstructure(value)
    if isinstance(value, ObjectKey):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


# --- objects


@lru_cache(maxsize=4096)
def _time(seconds: float) -> str:
    return format_time(seconds)


def _struct_factory(cls: type[Struct], converter: Converter) -> Callable[[Any], Any]:
    fields = attrs.fields(attrs.resolve_types(cls))
    kept = _KEPT.get(cls, tuple(field.name for field in fields))
    dropped = {"extra", *_DROPPED.get(cls, ())}
    overrides = {
        field.name: override(
            omit=field.name not in kept or field.name in dropped,
            rename=json_name(field),
            omit_if_default=field.default is not attrs.NOTHING
            and not isinstance(field.default, attrs.Factory),  # type: ignore[arg-type]
        )
        for field in fields
    }
    return make_dict_unstructure_fn(cls, converter, **overrides)  # type: ignore[arg-type]


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _tuple_factory(kind: Any, converter: Converter) -> Callable[[Any], Any]:
    unstructure = converter.get_unstructure_hook(get_args(kind)[0])
    return lambda value: [unstructure(one) for one in value]


def _build() -> Converter:
    converter = Converter()
    converter.register_unstructure_hook(Quantity, str)
    converter.register_unstructure_hook_func(lambda kind: kind in (Time, MicroTime), _time)
    strings, anything = Mapping[str, str], Mapping[str, Any]
    converter.register_unstructure_hook_func(lambda kind: kind in (strings, anything), dict)
    converter.register_unstructure_hook_func(
        lambda kind: kind == Mapping[str, Quantity],
        lambda value: {key: str(item) for key, item in value.items()},
    )
    converter.register_unstructure_hook_factory(_is_tuple, _tuple_factory)
    converter.register_unstructure_hook_factory(
        lambda kind: isinstance(kind, type) and issubclass(kind, Struct), _struct_factory
    )
    return converter


_converter = _build()
