"""Checks a job that a caller passes before anything is sent; each error names its field."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import orjson

from kueuelib.api.forms import Typed, raw_of
from kueuelib.api.meta import KubeObject, Obj
from kueuelib.api.models import is_model, without_models
from kueuelib.api.names import (
    DEFAULT_NAMESPACE,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    is_dns1123_subdomain,
)
from kueuelib.errors import ConfigError
from kueuelib.jobs.contract.generic_job import GenericJob

_TEXTS = ("name", "generateName", "namespace", "uid")
_MAPS = ("labels", "annotations")


def queued(
    job: Mapping[str, Any] | GenericJob[Any] | Typed,
    queue: str,
    namespace: str,
    priority_class: str,
) -> Obj:
    """A copy of a job in the form in which it is created in a queue.

    Args:
        job: an object in any form, or a `GenericJob`.
        queue: the LocalQueue.
        namespace: used if the job does not name one.
        priority_class: a WorkloadPriorityClass; empty for none.

    Raises:
        ConfigError: the job is not an object that could be created, or a name is invalid.
    """
    _check_name("queue", queue)
    if priority_class:
        _check_name("priority_class", priority_class)
    obj = placed(job, namespace)
    meta = obj["metadata"]
    if not meta.get("name") and not meta.get("generateName"):
        raise ConfigError("metadata.name", "is missing", "give the job a name or a generateName")
    labels = meta["labels"] = {**(meta.get("labels") or {}), QUEUE_LABEL: queue}
    if priority_class:
        labels[PRIORITY_CLASS_LABEL] = priority_class
    try:
        orjson.dumps(obj)
    except TypeError as error:
        raise ConfigError("the job", f"is not JSON: {error}", "give plain values") from error
    return obj


def existing(job: Mapping[str, Any] | GenericJob[Any] | Typed) -> Obj:
    """A copy of an existing job.

    Raises:
        ConfigError: it is ambiguous.
    """
    obj = placed(job, "")
    if not obj["metadata"].get("name"):
        raise ConfigError(
            "metadata.name", "is missing", "name the job, or give what submit returned"
        )
    return obj


def placed(job: Mapping[str, Any] | GenericJob[Any] | Typed, namespace: str) -> Obj:
    """A raw copy of a job that has a kind and a namespace.

    Raises:
        ConfigError: a field has a wrong type, or the kind is missing.
    """
    raw: Any = job.raw if isinstance(job, GenericJob) else job
    if isinstance(raw, KubeObject) or is_model(raw):
        raw = raw_of(raw)
    if not isinstance(raw, Mapping):
        fix = "give an object, a GenericJob, or what submit returned"
        raise ConfigError("the job", f"is a {type(raw).__name__}", fix)
    obj = copy.deepcopy(dict(without_models(raw)))
    if isinstance(job, GenericJob):
        kind = {"apiVersion": job.resource.api_version, "kind": job.resource.kind}
        obj = kind | {name: value for name, value in obj.items() if value or name not in kind}
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str) or not obj[field]:
            raise ConfigError(field, f"is {_shown(obj.get(field))}", "write it as in a manifest")
    obj["metadata"] = meta = _mapping("metadata", obj.get("metadata"))
    for field in _TEXTS:
        if not isinstance(meta.get(field) or "", str):
            raise ConfigError(f"metadata.{field}", f"is {_shown(meta[field])}", "write a text")
    for field in _MAPS:
        if field in meta:
            meta[field] = _texts(f"metadata.{field}", meta[field])
    meta["namespace"] = meta.get("namespace") or namespace or DEFAULT_NAMESPACE
    return obj


def _mapping(field: str, value: Any) -> Obj:
    if not isinstance(value or {}, Mapping):
        raise ConfigError(field, f"is {_shown(value)}", "write a mapping")
    return dict(value or {})


def _texts(field: str, value: Any) -> Obj:
    texts = _mapping(field, value)
    for key, each in texts.items():
        if not isinstance(key, str) or not isinstance(each, str):
            raise ConfigError(f"{field}[{key}]", f"is {_shown(each)}", "write a text")
    return texts


def _check_name(argument: str, value: Any) -> None:
    if not isinstance(value, str) or not is_dns1123_subdomain(value):
        fix = "give a name of lower-case letters, digits, - and ."
        raise ConfigError(argument, f"{_shown(value)} is not a name that an object can have", fix)


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)
