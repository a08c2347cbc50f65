"""Objects embedded in fields of others (`x-kubernetes-embedded-resource`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import invalid, non_negative, required
from kueuelib.embedded.builtins.metadata import validate_annotations, validate_labels
from kueuelib.embedded.schema.node import SchemaNode
from kueuelib.errors import FieldError


def embedded_objects(node: SchemaNode, value: Any, path: str = "") -> Iterator[tuple[str, Obj]]:
    """The objects embedded in a value, with their paths, without the value itself.

    Args:
        node: the schema of the value.
        value: a value, which may not match its schema.
        path: of the value.
    """
    if not node.embeds:
        return
    inner: Iterator[tuple[str, SchemaNode, Any]] = iter(())
    if isinstance(value, dict):
        parts = ((name, node.properties.get(name) or node.additional) for name in value)
        inner = (
            (f"{path}.{name}" if path else name, known, value[name])
            for name, known in parts
            if known is not None
        )
    elif isinstance(value, list) and node.items is not None:
        items = node.items
        inner = ((f"{path}[{i}]", items, each) for i, each in enumerate(value))
    for where, known, each in inner:
        if known.embedded and isinstance(each, dict):
            yield where, each
        yield from embedded_objects(known, each, where)


def embedded_problems(obj: Obj, path: str) -> list[FieldError]:
    """The broken rules of the head of an embedded object; its name may be anything.

    Values of wrong types are not checked here; `decoding.check_embedded` refuses them.
    """
    errors: list[FieldError] = []
    version, kind, meta = obj.get("apiVersion"), obj.get("kind"), obj.get("metadata")
    if not all(isinstance(each, str | None) for each in (version, kind)):
        return []
    if version is None:
        errors.append(required(f"{path}.apiVersion"))
    elif not version:
        errors.append(invalid(f"{path}.apiVersion", version, "must not be empty"))
    elif version.count("/") > 1:
        text = f"unexpected GroupVersion string: {version}"
        errors.append(invalid(f"{path}.apiVersion", version, text))
    if kind is None:
        errors.append(required(f"{path}.kind"))
    elif not kind:
        errors.append(invalid(f"{path}.kind", kind, "must not be empty"))
    elif texts := naming.label_1035(kind.lower()):
        text = f"may have mixed case, but should otherwise match: {','.join(texts)}"
        errors.append(invalid(f"{path}.kind", kind, text))
    if not isinstance(meta, dict):
        return errors
    where = f"{path}.metadata"
    if meta.get("namespace"):
        namespace = meta["namespace"]
        texts = naming.label(namespace)
        errors += [invalid(f"{where}.namespace", namespace, text) for text in texts]
    errors += non_negative(f"{where}.generation", meta.get("generation"))
    errors += validate_labels(meta.get("labels"), f"{where}.labels")
    return [*errors, *validate_annotations(meta.get("annotations"), f"{where}.annotations")]
