"""Objects as tables, and as metadata only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from kueuelib.api.meta import Obj
from kueuelib.embedded import failures
from kueuelib.embedded.builtins.defaults import TEMPLATE_GENERATION
from kueuelib.embedded.http.answers import MediaForm, Parts
from kueuelib.embedded.registry.cells import AGE, CREATED
from kueuelib.embedded.registry.kinds import Kind, KindVersion, PrinterColumn
from kueuelib.errors import NotAcceptable


def check_fits(wanted: MediaForm, kind: Kind, *, a_list: bool) -> None:
    """Refuses the view of one object for a list, and vice versa.

    Raises:
        NotAcceptable: it does not fit.
    """
    misfit = "PartialObjectMetadata" if a_list else "PartialObjectMetadataList"
    if wanted.view != misfit:
        return
    if not (kind.builtin or a_list):
        raise failures.unexplained("content is not a list")
    name = f"{kind.group.partition('.')[0] or 'core'}.{kind.kind}"
    if not kind.builtin:
        name = "unstructured.Unstructured"
    what = f"a list (*{name}List)" if a_list else f"not a list (*{name})"
    raise NotAcceptable(f"you requested {misfit}, but the requested object is {what}")


NAME = PrinterColumn(
    "Name",
    "string",
    lambda obj, _: obj["metadata"]["name"],
    format="name",
    description="Unique within a namespace.",
)
DEFAULT_COLUMNS = (AGE,)


def columns_of(kind: Kind, version: KindVersion) -> tuple[PrinterColumn, ...]:
    """All columns of a kind, including NAME if it comes first."""
    own = version.columns if version.columns is not None else DEFAULT_COLUMNS
    return own if kind.plural == "events" and kind.builtin else (NAME, *own)


def partial(obj: Obj, version: str = "v1") -> Obj:
    """Only the metadata of an object, without an annotation that is an internal field of
    Kubernetes.
    """
    meta = obj["metadata"]
    notes = meta.get("annotations") or {}
    if TEMPLATE_GENERATION in notes:
        notes = {name: text for name, text in notes.items() if name != TEMPLATE_GENERATION}
        meta = {name: value for name, value in meta.items() if name != "annotations"}
        meta |= {"annotations": notes} if notes else {}
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": meta,
    }


def row(
    kind: Kind, version: KindVersion, wanted: MediaForm, now: float, include: str, obj: Obj
) -> Obj:
    """One object as a row of a `Table`.

    Args:
        kind: of the object.
        version: of the object.
        wanted: the negotiated form.
        now: seconds since the epoch, for ages.
        include: `None`, `Metadata` or `Object`: the part of the object in each row.
        obj: the object.
    """
    shown = obj if include == "Object" else partial(obj, wanted.version)
    cells = [column.read(obj, now) for column in columns_of(kind, version)]
    return {"cells": cells, "object": None if include == "None" else shown}


def table(
    kind: Kind,
    version: KindVersion,
    rows: Sequence[Any],
    wanted: MediaForm,
    meta: Obj,
    *,
    headings: bool = True,
) -> Obj:
    """Rows as one `Table`.

    Args:
        kind: of the objects.
        version: of the objects.
        rows: of the objects.
        wanted: the negotiated form.
        meta: the metadata of the list.
        headings: whether the columns are described; in a watch only the first table does.
    """
    definitions: list[Obj] | None = None
    if headings:
        definitions = [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            }
            for column in columns_of(kind, version)
        ]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{wanted.version}",
        "metadata": meta,
        "columnDefinitions": definitions if definitions is not None else None,
        "rows": rows or (None if version.columns == CREATED else rows),
    }


def list_head(kind: str, api_version: str, meta: Obj) -> bytes:
    """The JSON of a list up to its items."""
    head = orjson.dumps({"kind": kind, "apiVersion": api_version, "metadata": meta})
    return head[:-1] + b',"items":['


def raw_list(kind: Kind, version: KindVersion, items: Iterable[bytes], meta: Obj) -> Parts:
    """A list of encoded objects; items of built-in kinds lose apiVersion and kind."""
    api_version = kind.api_version(version.name)
    head = b""
    if kind.builtin:
        names = orjson.dumps(kind.kind), orjson.dumps(api_version)
        head = b'{"kind":%b,"apiVersion":%b,' % names
    else:
        meta = {"continue": "", **meta}
    parts: Parts = [list_head(kind.list_kind, api_version, meta)]
    for raw in items:
        cut = head and raw.startswith(head)
        parts += (b"{", memoryview(raw)[len(head) :], b",") if cut else (raw, b",")
    return [*(parts[:-1] or parts), b"]}"]


def viewed(
    obj: Any, kind: Kind, version: KindVersion, wanted: MediaForm, now: float, include: str
) -> Any:
    """One object in the wanted view."""
    if wanted.view == "Table":
        known = obj["metadata"].get("resourceVersion")
        meta = {"resourceVersion": known} if known else {}
        rows = [row(kind, version, wanted, now, include, obj)]
        return table(kind, version, rows, wanted, meta)
    if wanted.view == "PartialObjectMetadata":
        return partial(obj, wanted.version)
    return obj
