"""The three things that a structural schema does to an object, in one value."""

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
"""So many compiled schemas are kept: the same one is needed again at once."""


@attrs.frozen(eq=False)
class StructuralSchema:
    """What a CustomResourceDefinition says about one version of its kind.

    Attributes:
        node: the root.
    """

    node: SchemaNode
    _books: list[Any] = attrs.field(factory=list, init=False, repr=False)

    @classmethod
    def of(cls, openapi: Mapping[str, Any]) -> StructuralSchema:
        """From an `openAPIV3Schema`; what a definition was judged by is served, too.

        Raises:
            ValueError: a pattern or a list type is none.
        """
        text = orjson.dumps(openapi)
        schema = _RECENT.pop(text, None) or cls(from_openapi(openapi))
        _RECENT[text] = schema
        if len(_RECENT) > KEPT:
            _RECENT.popitem(last=False)
        return schema

    def prune(self, obj: Obj) -> list[str]:
        """Remove unknown fields in place, and give their paths."""
        return prune(self.node, obj)

    def embedded(self, obj: Obj) -> Iterator[tuple[str, Obj]]:
        """The objects that are embedded in an object, with their paths."""
        return embedded_objects(self.node, obj)

    def default(self, obj: Obj) -> None:
        """Fill in defaults in place."""
        apply_defaults(self.node, obj)

    def fill(self, obj: Obj) -> None:
        """Custom objects are written as they are."""

    def zero(self) -> Obj:
        """Nothing is there but for what was written."""
        return {}

    def validate(self, obj: Obj, old: Obj | None = None) -> list[FieldError]:
        """The broken rules; what did not change since `old` is not held against the object.

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
