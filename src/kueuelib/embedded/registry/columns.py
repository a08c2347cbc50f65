"""The columns that `kubectl get` shows for built-in kinds; NAME and AGE are those of every kind.

They are data: `columns.txt` next to this module, whose head explains it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.registry import cells
from kueuelib.embedded.registry.cells import NONE
from kueuelib.embedded.registry.kind import Column
from kueuelib.machinery.fields import field_of


def _read(text: str) -> Callable[[Obj, float], Any]:
    name, *arguments = shlex.split(text)
    if name.startswith("."):
        absent = arguments[0] if arguments else NONE
        return lambda obj, _: field_of(obj, name[1:]) or absent
    cell: Callable[..., Any] = getattr(cells, name)
    return cell(*arguments) if arguments else cell


AGE: Final = Column("Age", "string", cells.ago("metadata.creationTimestamp"))
CREATED: Final = (Column("Created At", "date", _read(".metadata.creationTimestamp")),)
"""The columns of a kind without its own."""
_POD: Final = tuple(
    Column(name, "string", cells.every(f"spec.template.spec.containers.{key}"), priority=1)
    for name, key in (("Containers", "name"), ("Images", "image"))
)
_SHARED: Final[Mapping[str, tuple[Column, ...]]] = {
    "AGE": (AGE,),
    "CREATED": CREATED,
    "POD": _POD,
    "SELECTOR": (Column("Selector", "string", cells.selector, priority=1),),
}


def _columns(lines: list[str]) -> Iterator[Column]:
    for line in lines:
        if line in _SHARED:
            yield from _SHARED[line]
            continue
        name, type_, text, *marks = (part.strip() for part in line.split(" | "))
        wide, _, form = "".join(marks).partition(" ")
        yield Column(name, type_, _read(text), form, priority=int(wide == "wide"))


def _all() -> Iterator[tuple[str, tuple[Column, ...]]]:
    text = files("kueuelib.embedded.registry").joinpath("columns.txt").read_text("ascii")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for paragraph in "\n".join(lines).replace("\n ", "\t").splitlines():
        kinds, *lines = paragraph.split("\t")
        yield from ((kind, tuple(_columns(lines))) for kind in kinds.split())


COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = dict(_all())
