"""Problems of an applied configuration, with paths in the form of server-side apply."""

from __future__ import annotations

import re
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.decoding import copy_json
from kueuelib.embedded.patching.fieldsets import NO_KEY, element, show_element
from kueuelib.embedded.schema.node import ListType, SchemaNode

UNDECLARED: Final = "field not declared in schema"
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def typed_problem(node: SchemaNode, value: Any, path: str, text: str) -> str:
    """One problem with its path, in which items of keyed lists are named by their keys.

    Args:
        node: how the kind merges.
        value: the configuration.
        path: in the form of decoders: `spec.containers[0].image`.
        text: the problem.
    """
    where, at = "", 0
    while match := _STEP.match(path, at):
        name, index = match.groups()
        if name is not None and isinstance(value, dict) and name in value:
            value, node, where = value[name], node.child(name), f"{where}.{name}"
        elif index is not None and isinstance(value, list) and int(index) < len(value):
            value, step, keyed = value[int(index)], match[0], node.list_type is ListType.MAP
            if keyed and not isinstance(value, dict):
                why = "associative list with keys may not have non-map elements"
                return f"{where}: element {index}: {why}"
            if keyed and (key := element(node, value)) != NO_KEY:
                step = show_element(key)
            node, where = node.item, where + step
        else:
            break
        at = match.end()
    rest = path[at:]
    return f"{where}{'.' if rest and at == 0 else ''}{rest}: {text}"


def without(config: Obj, path: str) -> Obj | None:
    """A copy of a configuration without the value at a path; None if there is none."""
    steps = [(match[1], match[2]) for match in _STEP.finditer(path)]
    copied: Obj = copy_json(config)
    outer: Any = copied
    for at, (name, index) in enumerate(steps):
        key: Any = name if index is None else int(index)
        try:
            inner = outer[key]
            if at == len(steps) - 1:
                outer[key] = None
                return copied
            outer = inner
        except (KeyError, IndexError, TypeError):
            break
    return None
