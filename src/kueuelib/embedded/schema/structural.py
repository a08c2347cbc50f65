"""Pruning, defaults and validation by a structural schema."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import orjson

from kueuelib.api.meta import Obj
from kueuelib.embedded.schema.defaults import apply_defaults
from kueuelib.embedded.schema.embedded_objects import embedded_objects
from kueuelib.embedded.schema.node import SchemaNode, from_openapi
from kueuelib.embedded.schema.prune import prune
from kueuelib.embedded.schema.validate import validate
from kueuelib.errors import FieldError

KEPT = 4
"""The number of compiled schemas that are kept, because the same one is soon needed again."""


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
        text = orjson.dumps(openapi)
        schema = _RECENT.pop(text, None) or cls(from_openapi(openapi))
        _RECENT[text] = schema
        if len(_RECENT) > KEPT:
            _RECENT.popitem(last=False)
        return schema

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

    def validate(self, obj: Obj, old: Obj | None = None) -> list[FieldError]:
        """The broken rules, except in parts that have not changed since `old`.

        CEL rules (`x-kubernetes-validations`) come last; they are compiled at their first use.
        """
        errors = validate(self.node, obj, old)
        if self.node.ruled:
            if not self._books:
                from kueuelib.embedded.cel.checking import RuleBook

                self._books.append(RuleBook(self.node))
            errors += self._books[0].broken(obj, old, errors)
        return errors

    def rule_problems(self, path: str) -> list[FieldError]:
        """Why the CEL rules of the schema cannot be compiled.

        Args:
            path: of the schema in the definition.
        """
        if not self.node.ruled:
            return []
        from kueuelib.embedded.cel.checking import RuleBook
        from kueuelib.embedded.cel.rules import problems_of

        problems = problems_of(self.node, path)
        if not problems and not self._books:
            self._books.append(RuleBook(self.node))
        return problems


_RECENT: OrderedDict[bytes, StructuralSchema] = OrderedDict()
