"""The lines of a watch."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import orjson

from kueuelib.api.meta import Obj
from kueuelib.embedded.http import views
from kueuelib.embedded.http.negotiation import Form
from kueuelib.embedded.registry.kind import Kind, Version
from kueuelib.embedded.watching import Frame

Line = tuple[bytes, bytes, bytes]
"""The prefix, the JSON, and the suffix."""

_HEADS = {
    type_: b'{"type":"%b","object":' % type_.encode()
    for type_ in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
}


@attrs.define(eq=False)
class Framer:
    """One watch event as a line."""

    _kind: Kind
    _version: Version
    _wanted: Form
    _include: str
    _now: Callable[[], float]
    _headings: bool = attrs.field(init=False, default=True)

    def __call__(self, event: Frame) -> Line:
        """The parts of the line of an event."""
        type_, raw = event
        if self._wanted.view and type_ not in ("ERROR", "BOOKMARK"):
            raw = orjson.dumps(self._view(orjson.loads(raw)))
        elif self._wanted.view and type_ == "BOOKMARK":
            raw = orjson.dumps(self._view_bookmark(orjson.loads(raw)))
        return _HEADS[type_], raw, b"}\n"

    def _view(self, obj: Obj) -> Obj:
        if self._wanted.view != "Table":
            return views.partial(obj, self._wanted.version)
        headings, self._headings = self._headings, False
        kind, version, wanted = self._kind, self._version, self._wanted
        rows = [views.row(kind, version, wanted, self._now(), self._include, obj)]
        meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return views.table(kind, version, rows, wanted, meta, headings=headings)

    def _view_bookmark(self, obj: Obj) -> Obj:
        if self._wanted.view != "Table":
            return views.partial(obj, self._wanted.version)
        row = {"cells": [], "object": views.partial(obj, self._wanted.version)}
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self._wanted.version}",
            "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
            "columnDefinitions": None,
            "rows": [row],
        }
