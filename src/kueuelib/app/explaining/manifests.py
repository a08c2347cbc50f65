"""Reads the manifests that `kueuelib explain -f` asks about."""

from __future__ import annotations

from typing import Any

import attrs

from kueuelib.api.kinds import JOBS, PODS, WORKLOADS
from kueuelib.api.meta import Obj
from kueuelib.app.explaining.subject import unexplained
from kueuelib.errors import ConfigError
from kueuelib.runtime.yaml_files import documents

_KINDS = {one.kind for one in (JOBS, PODS, WORKLOADS)}


@attrs.frozen
class Document:
    """One object of a manifest.

    Attributes:
        obj: the raw object, with a namespace and a name.
        subject: what to call it in errors: file, number of the document, kind and name.
        title: its kind and name.
    """

    obj: Obj
    subject: str
    title: str


def parse_manifests(text: str, source: str, namespace: str, default: str) -> tuple[Document, ...]:
    """All objects of a text, with `List`s unpacked.

    Args:
        text: YAML or JSON, with any number of documents.
        source: what to call it in errors.
        namespace: the namespace that was asked for, empty for none.
        default: the namespace of objects that name none.

    Raises:
        ConfigError: malformed or empty YAML, a document that is not an object, or another namespace
            than requested.
    """
    contents = documents(text, source)
    parsed = []
    for number, content in enumerate(contents, start=1):
        if content is None:
            continue
        subject = source if len(contents) == 1 else f"{source}, document {number}"
        parsed += [
            _document(obj, subject, namespace, default) for obj in _objects(content, subject)
        ]
    if not parsed:
        raise ConfigError(source, "holds no object", "give a manifest of a Job, Pod or Workload")
    return tuple(parsed)


def _objects(content: Any, subject: str) -> list[Any]:
    if isinstance(content, dict) and content.get("kind") == "List":
        return list(content.get("items") or ())
    if not isinstance(content, dict):
        raise ConfigError(subject, "is not a mapping", "give a manifest with apiVersion and kind")
    return [content]


def _document(obj: Any, subject: str, namespace: str, default: str) -> Document:
    if not isinstance(obj, dict):
        raise ConfigError(subject, "holds an item that is not a mapping", "correct the list")
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str):
            raise ConfigError(subject, f"{field} is missing", "name it as in any manifest")
    meta = obj.get("metadata")
    meta = dict(meta) if isinstance(meta, dict) else {}
    name = meta.get("name") or (f"{meta['generateName']}new" if meta.get("generateName") else "")
    if not isinstance(name, str) or not name:
        if obj["kind"] not in _KINDS:
            raise unexplained(obj, subject)
        raise ConfigError(f"{subject}, {obj['kind']}", "metadata.name is missing", "give it a name")
    title = f"{obj['kind']} {name}"
    own_namespace = meta.get("namespace")
    if own_namespace and namespace and own_namespace != namespace:
        raise ConfigError(
            f"{subject}, {title}",
            f"metadata.namespace is {own_namespace}, but {namespace} was asked for",
            "leave one of them out",
        )
    meta |= {"name": name, "namespace": own_namespace or namespace or default}
    return Document({**obj, "metadata": meta}, f"{subject}, {title}", title)
