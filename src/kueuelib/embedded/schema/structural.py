"""What a structural schema does to an object: it removes, fills in and judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import attrs
import orjson

from kueuelib.api.meta import Obj
from kueuelib.embedded.schema.node import SchemaNode, from_openapi
from kueuelib.embedded.schema.validate import embedded_objects, validate
from kueuelib.errors import FieldError

KEPT = 32
"""The number of compiled schemas that are kept: the same one is validated, served, and needed again
by the next server of this process.
"""


@attrs.frozen(eq=False)
class StructuralSchema:
    """The schema of one version of a CustomResourceDefinition.

    Attributes:
        node: the root.
    """

    node: SchemaNode
    _books: list[Any] = attrs.field(factory=list, init=False, repr=False)

    @classmethod
    def of(cls, openapi: Mapping[str, Any]) -> StructuralSchema:
        """From an `openAPIV3Schema`; the schema that was validated is also the one served.

        Raises:
            ValueError: a pattern or a list type is not valid.
        """
        return _compiled(orjson.dumps(openapi))

    def prune(self, obj: Obj) -> list[str]:
        """Remove unknown fields in place, and return their paths."""
        return prune(self.node, obj)

    def embedded(self, obj: Obj) -> Iterator[tuple[str, Obj]]:
        """The objects that are embedded in an object, with their paths."""
        return embedded_objects(self.node, obj)

    def default(self, obj: Obj) -> None:
        """Fill in defaults in place."""
        apply_defaults(self.node, obj)

    def fill(self, obj: Obj) -> None:
        """Does nothing: custom objects are written as they are."""

    def zero(self) -> Obj:
        """An empty object: only written fields exist."""
        return {}

    def validate(
        self, obj: Obj, old: Obj | None = None, known: Sequence[FieldError] = ()
    ) -> list[FieldError]:
        """The broken rules, except in parts that have not changed since `old`.

        CEL rules (`x-kubernetes-validations`) come last; they are compiled at their first use.
        """
        errors = validate(self.node, obj, old)
        if self.node.ruled:
            if not self._books:
                from kueuelib.embedded.cel.checking import RuleBook

                self._books.append(RuleBook(self.node))
            errors += self._books[0].broken(obj, old, [*known, *errors])
        return errors

    def rule_problems(self, path: str) -> list[FieldError]:
        """Why the CEL rules of the schema cannot be compiled, or which of them its defaults break.

        Args:
            path: of the schema in the definition.
        """
        if not self.node.ruled:
            return []
        if not self._books or self._books[0].problems:
            from kueuelib.embedded.cel.checking import RuleBook

            self._books[:] = [RuleBook(self.node, path)]
        book = self._books[0]
        broken: list[FieldError] = book.problems or book.broken_by_defaults(path)
        return broken


@lru_cache(KEPT)
def _compiled(openapi: bytes) -> StructuralSchema:
    return StructuralSchema(from_openapi(orjson.loads(openapi)))


def apply_defaults(node: SchemaNode, value: Any) -> None:
    """Fill in the defaults of absent fields in place, including nested ones.

    If the schema does not allow null, it counts as absent: such fields get their default or are
    removed.
    """
    if isinstance(value, dict):
        if None in value.values():
            _drop_nulls(node, value)
        for name, default in node.defaults:
            if name not in value:
                value[name] = _copy(default)
        for name, each in value.items():
            if isinstance(each, dict | list):
                known = node.properties.get(name) or node.additional
                if known is not None:
                    apply_defaults(known, each)
    elif isinstance(value, list) and node.items is not None:
        for item in value:
            apply_defaults(node.items, item)


def _drop_nulls(node: SchemaNode, value: dict[str, Any]) -> None:
    for name in [name for name, each in value.items() if each is None]:
        known = node.properties.get(name) or node.additional
        if known is not None and not known.nullable:
            del value[name]


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(each) for each in value]
    return value


_HEAD = frozenset({"apiVersion", "kind", "metadata"})


def prune(node: SchemaNode, obj: Obj) -> list[str]:
    """Remove unknown fields in place.

    The `apiVersion`, `kind` and `metadata` of the object and of embedded ones stay untouched.

    Returns:
        the paths of removed fields, for example `spec.queues[0].colour`.
    """
    removed: list[str] = []
    _prune(node, obj, "", removed, head=True)
    return removed


def _prune(node: SchemaNode, value: Any, path: str, removed: list[str], *, head: bool) -> None:
    if isinstance(value, dict):
        _prune_map(node, value, path, removed, head=head or node.embedded)
    elif isinstance(value, list) and node.items is not None:
        for index, item in enumerate(value):
            _prune(node.items, item, f"{path}[{index}]", removed, head=False)


def _prune_map(node: SchemaNode, value: Obj, path: str, removed: list[str], *, head: bool) -> None:
    for name in list(value):
        if head and name in _HEAD:
            continue
        known = node.properties.get(name) or node.additional
        if known is not None:
            each = value[name]
            if isinstance(each, dict | list):
                inner = f"{path}.{name}" if path else name
                _prune(known, each, inner, removed, head=False)
        elif not (node.preserve_unknown or node.int_or_string):
            del value[name]
            removed.append(f"{path}.{name}" if path else name)
